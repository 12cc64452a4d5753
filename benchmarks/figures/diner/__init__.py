"""Figures of the paper on DINER."""
