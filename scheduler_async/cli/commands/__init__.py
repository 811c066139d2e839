"""The commands, a module for each family: what a command takes, and what it calls.

What several commands share is in `options`, `store_access` and `job_names`; how answers look is in `render`, `live` and
`json_output`. `app` lists the commands in the order of the help.
"""
