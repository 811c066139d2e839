"""Several processes on one PostgreSQL server: ours and those of others, and how `postgres.py` keeps them."""
