"""Flink's joins of the same rows, in a program of its own."""
