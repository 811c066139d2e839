"""What happens to jobs: every rule about what runs, what does not, and what comes next. Pure: no I/O.

Someone who asks "what happens when …?" opens one module:

    edits           people add, edit, pause, resume or disable a job
    claiming        a claim takes up an occurrence, and leaves others out
    finishing       a run has ended
    missed          occurrences have passed, and are merged into one row
    clock_changes   the clock has gone back
    explaining      would it run now, why not, and when will it?
    order, groups   who goes first, and who has to wait for a group
    claim_ahead     how long before its time a job is claimed

Each rule takes a `Job` and the moment, in microseconds, and returns what the job looks like then, with the
occurrences that will never run, so that each of them leaves a row. Fetching and saving are left to `stores`, and
doing to `engine`.
"""
