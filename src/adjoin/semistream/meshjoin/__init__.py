"""MESHJOIN, R-MESHJOIN and CMESHJOIN: the master is scanned round and round."""
