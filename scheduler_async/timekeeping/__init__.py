"""Time: the clock, instants, durations, zones, and jumps of the wall clock.

Only `clock` asks the machine for the time. Nothing here knows of jobs or schedules; limits on how long a run may
take are in `running`.
"""
