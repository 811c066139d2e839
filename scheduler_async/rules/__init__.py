"""The rules of scheduling: which jobs run, which occurrences are skipped, and what comes next. Pure: no I/O.

Open one module for each question:

    edits           a user adds, edits, pauses, resumes or disables a job
    claiming        a claim selects one occurrence, and skips others
    finishing       a run has ended
    instances       the same two, for a job that may have several runs at once
    plans           what such a job is to run, and when
    next_run        the next run of a job, and the occurrences that it owes
    missed          occurrences have passed, and are merged into one row
    clock_changes   the clock was set back
    explaining      whether a job would run now, why not, and when it will
    order, groups   the order of due jobs, and the limits of groups
    claim_ahead     how long before its time a job is claimed

Each rule takes a `Job` and a time in microseconds. It returns the new state of the job, with the occurrences that will
never run, so that each of them gets a row. `stores` load and save jobs, and `engine` acts on the decisions.
"""
