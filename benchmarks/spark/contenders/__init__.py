"""The ways to join a stream with the master, one class each."""
