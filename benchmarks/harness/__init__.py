"""What all benchmarks share: one run at a time, results on disk, the page in the docs."""
