"""Page memory on the host of an executor: its files, and who removes them."""
