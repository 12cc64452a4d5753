"""Figures of the paper on HYBRIDJOIN."""
