"""One handler under its limits: how it is called, with which arguments, for how long, and how it ended.

`runner` starts handlers as tasks and reports how they ended. `rules` decide what an ending means for the job, and
`engine` decides when a run may start.
"""
