"""What the figures of joins have in common whose rows wait in a queue."""
