"""The parts of `benchmarks/torture.py`, and what they share."""
