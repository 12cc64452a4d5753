"""Joins of streams: the time to the complete result, and how much of it is early."""
