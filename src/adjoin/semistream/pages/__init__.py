"""Pages of the master: which are in memory, which are read next, and how."""
