"""Stores for jobs, runs and nodes: their interface (`protocol`, `messages`), and its implementations.

`codec`, `run_codec` and `node_codec` convert rows to values and back. `unreadable` checks the values of columns.
`decisions` and `claim_plan` apply the rules within a transaction. `conditions` converts filters to SQL. `sqlite` and
`postgres` contain the same modules in the same order, so that a diff shows the differences of the dialects. A store
reads and writes; the rules are in `rules`.
"""
