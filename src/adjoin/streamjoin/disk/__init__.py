"""Tuples on disk: sorted blocks, which of them have been joined, and how the rest is."""
