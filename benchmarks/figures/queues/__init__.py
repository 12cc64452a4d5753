"""What the figures on joins with a queue of rows share."""
