"""The joins of streams that DINER and MINER are measured against, and what only these use."""
