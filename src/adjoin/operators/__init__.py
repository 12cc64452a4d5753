"""The contract of every operator, its clock, and input that comes late."""
