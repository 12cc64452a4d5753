"""How keys are encoded as int64, and how they are compared."""
