"""Functions over arrays, compiled by numba, and nothing else."""
