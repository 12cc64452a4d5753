"""What pyarrow leaves to its users: decoding columns, copying rows, measuring them."""
