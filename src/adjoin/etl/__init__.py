"""The steps of a warehouse load, built on `enrich`: DataFrame in, DataFrame out."""

from adjoin.etl.apply_changes import apply_changes
from adjoin.etl.deduplicate import deduplicate
from adjoin.etl.new_rows import new_rows
from adjoin.etl.surrogate_keys import surrogate_keys
from adjoin.spark.enrich.enrich import enrich

__all__ = ["apply_changes", "deduplicate", "enrich", "new_rows", "surrogate_keys"]
