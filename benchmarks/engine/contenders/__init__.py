"""One file per contender; each answers batches of stream keys with the master's four columns in Arrow."""
