"""Tuples on disk: sorted blocks, their files, and which of them have been joined."""
