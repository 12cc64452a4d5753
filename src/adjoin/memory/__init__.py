"""Bytes with a budget: the arena, the files it is mapped from, and the columns of pages that lie in it."""
