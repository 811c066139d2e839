"""Where jobs, runs and nodes live: what a store is asked (`protocol`, `messages`), and the stores there are.

`codec`, `run_codec` and `node_codec` turn rows into values and back, `unreadable` tells what a row must not hold,
`decisions`, `claim_plan` and `short_ways` are what every store decides by the rules within a transaction, `conditions`
what a filter asks of rows. `sqlite` and `postgres` hold the same modules in the same order, so that a diff shows the
dialect. A store reads and writes; rules are in `rules`.
"""
