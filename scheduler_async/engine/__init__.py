"""The engine room: it does, and does not decide.

`engine` starts, stops, opens and closes. `session` puts the parts together for as long as the store is open:

- `loop` looks at what is due, `claimer` takes it from the store, `launcher` starts it (`held_runs` wait for that).
- `ended_runs` wait for the `recorder`, which commits them and follows up. `announcer` writes events and log lines.
- `agenda` knows what is due next and wakes the loop; `lookahead` says how far ahead of its time it is claimed.
- `membership` keeps this process alive as a node, which `own_node` describes. `janitor` removes what is old.
- `editor` changes jobs. `single_pass` and `manual_run` run them without the loop. `outlook` tells what would run.
- `clock_watch` notices jumps of the wall clock, `troubles` those of the store. `checkup` and `health` tell of them.
- `setting`, `locks` and `tasks` are what the parts stand on.

What happens to a job is decided in `rules`, what is stored in `stores`, and how a handler is called in `running`. What
users call is in `scheduler`.
"""
