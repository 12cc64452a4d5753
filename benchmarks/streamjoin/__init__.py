"""Streams joined: how long to the complete result, and how much of it comes early."""
