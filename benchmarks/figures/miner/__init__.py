"""Joins of many streams: the figures of section 5.5 of the DINER paper."""
