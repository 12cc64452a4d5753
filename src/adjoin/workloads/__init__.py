"""Inputs for demo, tests and benchmarks: skewed keys and bursty arrivals, the same for the same seed."""
