"""What all operators share: their contract, their clock, and late input."""
