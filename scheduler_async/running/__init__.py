"""One handler under its limits: what is called, with which arguments, for how long, and how it ended.

`runner` starts handlers as tasks and hands over how they ended. What an ending means for the job is decided in
`rules`; when a run may start is decided in `engine`.
"""
