"""Value types: jobs, runs, retry policies, results and events.

Values are frozen, and checked when they are created. The rules in `rules` decide what happens to a job, `stores` keep
it, and `running` runs it.
"""
