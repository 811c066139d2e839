"""The store in PostgreSQL.

`store` has the connections, the errors and one method for each question of the protocol; `schema` the tables;
`bulk_writes` how many rows are written at once. `work` puts the transactions together from their subjects: `jobs`,
`claims`, `endings`, `nodes`, `upkeep` and `copying`, which share `base`.
"""
