"""The store in memory, without SQL and without a thread.

`store` is the store for the engine. `work` combines its transactions, one module for each subject, as in `sqlite`. They
are plain functions over dictionaries. A transaction decides first and writes then, so that an error leaves everything
unchanged; and since it never waits, no other one sees half of it.
"""
