"""Joins on Spark: DataFrame in, DataFrame out."""
