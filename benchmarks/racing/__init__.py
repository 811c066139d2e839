"""The races of `benchmarks/`: the contestants, the questions, and how the answers are shown.

`python -m racing CONTESTANT COURSE '{"its": "arguments"}'` runs one measurement in a process of its own.
"""
