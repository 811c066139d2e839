"""The store in a SQLite file, or in memory."""
