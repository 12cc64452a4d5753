"""SSIJ against LMDB, DuckDB, SQLite and Polars, in one process each, under one memory cap."""
