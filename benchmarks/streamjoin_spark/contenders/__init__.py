"""The ways to join streams on Spark."""
