"""Tuples in memory: where their rows are stored, and how they are found by key."""
