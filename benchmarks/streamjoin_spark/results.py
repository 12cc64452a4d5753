"""The columns of this benchmark's results."""

from benchmarks.harness.results import ORIGIN, Table

TABLE = Table(
    columns=(
        *ORIGIN,
        "setting",
        "case",
        "contender",
        "repetition",
        "batch_rows",
        "warm_batches",
        "batches",
        "memory_bytes",
        "partitions",
        "add_batch_seconds",
        "add_batch_seconds_max",
        "trigger_seconds",
        "trigger_seconds_max",
        "rows_per_second",
        "rows_out",
        "whole_seconds",
        "state_rows",
        "state_memory_bytes",
        "state_disk_bytes",
        "checkpoint_bytes",
        "peak_bytes",
        "peak_java_bytes",
        "memory_growth",
        "load_average",
        "failure",
        "metrics",
    ),
    part="setting",
)
