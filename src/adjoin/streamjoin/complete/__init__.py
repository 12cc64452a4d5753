"""What a join of two inputs needs to return all results of the rows so far."""
