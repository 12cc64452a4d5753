"""A stream joined with a master: one file per algorithm."""
