"""How a key becomes an int64, and how keys are compared."""
