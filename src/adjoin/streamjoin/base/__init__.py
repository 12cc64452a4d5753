"""What the joins of streams share."""
