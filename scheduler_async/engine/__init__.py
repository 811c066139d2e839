"""The engine: it acts on decisions that `rules` make.

`engine` starts, stops, opens and closes. `session` puts the parts together for as long as the store is open:

- `loop` looks for due jobs, `claimer` claims them in the store, `launcher` starts them (`held_runs` wait for that).
- `ended_runs` wait for the `recorder`, which commits them and follows up; `patience` says which may wait for others.
- `announcer` sends events and log lines.
- `agenda` knows what is due next and wakes the loop; `lookahead` says how long before its time a job is claimed.
- `membership` keeps this process alive as a node, which `own_node` describes. `janitor` removes old runs and jobs.
- `editor` changes jobs. `single_pass` and `manual_run` run them without the loop. `outlook` tells what would run.
- `requests` cancels runs for other processes, `run_waits` waits for runs of any process, `reporter` stores progress.
- `clock_watch` notices jumps of the wall clock, `troubles` failures of the store. `checkup` and `health` report both.
- `setting`, `locks` and `tasks` are used by all parts. Edits share a lock that claims take alone (`shared_lock`).

What happens to a job is decided in `rules`. `stores` keep jobs and runs, `running` calls handlers, and `scheduler` is
the API for users.
"""
