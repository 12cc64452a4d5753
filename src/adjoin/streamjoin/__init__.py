"""Streams joined with streams: every input is seen once, memory is bounded, results come early."""
