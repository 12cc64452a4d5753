"""`enrich`: from the DataFrame to the task that joins a partition."""
