"""SSIJ against LMDB, DuckDB, SQLite and Polars, each in its own process, under one memory cap."""
