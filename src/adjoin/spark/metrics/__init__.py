"""Metrics of a micro-batch, on their way to the driver."""
