"""Page memory on an executor's host: the page files, and who removes them."""
