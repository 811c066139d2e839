"""The engine room: the loop, claims, recorded endings, the node that this process is, and upkeep.

The engine does; it does not decide. What happens to a job is decided in `rules`, what is stored in `stores`, and
how a handler is called in `running`. What users call is in `scheduler`.
"""
