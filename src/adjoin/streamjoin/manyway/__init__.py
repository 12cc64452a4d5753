"""Joins of any number of streams: what MINER and MJoin have in common."""
