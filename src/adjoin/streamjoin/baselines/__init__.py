"""The stream joins that DINER and MINER are compared with, and what only these use."""
