"""Figures of the paper on CMESHJOIN."""
