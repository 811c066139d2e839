"""The store in PostgreSQL.

`store` contains the connections, the errors, and one method for each method of the protocol. `schema` contains the
tables, and `bulk_writes` the statements that write many rows. `work` combines the transactions of `jobs`,
`run_log`, `claims`, `lone_claims`, `endings`, `nodes`, `history`, `upkeep` and `copying`, which share `base`.
"""
