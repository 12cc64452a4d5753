"""MESHJOIN, R-MESHJOIN and CMESHJOIN: the master is scanned in an endless cycle."""
