"""Tuples in memory: where they lie, how they are found, and which of them leave."""
