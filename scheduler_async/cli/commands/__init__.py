"""The commands, a module for each family: their options, and the calls that they make.

Code that several commands share is in `options`, `store_access` and `job_names`. The modules `…_views` and `live`
print results, and `calls.json_output` gives them the form of JSON. `app` lists the commands in the order of the help.
The docstring of a command is its help.
"""
