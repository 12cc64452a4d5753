"""Joins of two inputs: what DINER and most baselines share."""
