"""The public calls of the scheduler, by purpose: `Scheduler` combines them, and `Namespace` offers them to a tenant.

A call checks its arguments, asks the engine, and returns public values. What happens then belongs in `engine`, and what
becomes of a job in `rules`.
"""
