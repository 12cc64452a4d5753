"""What all benchmarks share: one run at a time, results on disk, a page in the docs."""
