"""What the joins of a stream with a master share."""
