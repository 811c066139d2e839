"""The HTTP API, `api/v1`: JSON in the form of `--json`, problem details for errors.

`jobs`, `runs` and `around` read; `acting` runs, pauses and cancels, `managing` adds, edits and removes, both through
`operations`. `parameters` reads what requests say and `answers` writes what they get. `openapi` describes all
of it, from the routes and the types of the values.
"""
