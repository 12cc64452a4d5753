"""What operators did in a micro-batch, on its way to the driver."""
