"""Joins of streams on Spark: from DataFrames to the operator of a bucket, and back."""
