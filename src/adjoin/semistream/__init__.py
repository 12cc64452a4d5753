"""A stream joined with a master: a folder or file per algorithm, and what they share."""
