"""HYBRIDJOIN and X-HYBRIDJOIN: the oldest row decides what is read."""
