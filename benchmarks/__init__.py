"""Measurements of adjoin against other ways to do the same work."""
