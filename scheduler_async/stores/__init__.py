"""Stores for jobs, runs and nodes: their interface (`protocol`, `messages`), and its implementations.

`decisions`, `edit_plan` and `claim_plan` apply the rules within a transaction, for all stores. `codec`, `run_codec` and
`node_codec` convert rows to values and back. `unreadable` checks the values of columns. `conditions` converts filters
to SQL. `sqlite` and `postgres` contain the same modules in the same order, so that a diff shows the differences of the
dialects. `memory` has those modules without SQL, and is the shortest way to see what a store does. A store reads and
writes; the rules are in `rules`.
"""
