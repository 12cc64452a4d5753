"""`enrich`, from the DataFrame down to the task that joins a partition."""
