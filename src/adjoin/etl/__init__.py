"""The transformations of a warehouse load on top of `enrich`: from DataFrame to DataFrame."""

from adjoin.etl.changes import apply_changes
from adjoin.etl.duplicates import deduplicate
from adjoin.etl.newrows import new_rows
from adjoin.etl.surrogates import surrogate_keys
from adjoin.spark.enrich.enrich import enrich

__all__ = ["apply_changes", "deduplicate", "enrich", "new_rows", "surrogate_keys"]
