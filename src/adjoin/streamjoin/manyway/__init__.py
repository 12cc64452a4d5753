"""Joins of any number of inputs: what MINER and MJoin share."""
