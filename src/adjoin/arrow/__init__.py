"""Arrow data: decoding columns, copying rows, measuring them."""
