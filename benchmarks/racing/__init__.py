"""The races of `benchmarks/`: who takes part, what each is asked, and how the answers are told.

`python -m racing CONTESTANT COURSE '{"its": "arguments"}'` runs one measurement in a process of its own.
"""
