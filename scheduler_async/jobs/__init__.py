"""What things are: jobs, runs, retry policies, results and events, as values.

Values are frozen, and checked when they are made. Nothing here decides what happens to a job (`rules`), keeps it
(`stores`) or runs it (`running`).
"""
