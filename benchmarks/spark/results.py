"""The columns of this benchmark's results."""

from benchmarks.harness.results import ORIGIN, Table

TABLE = Table(
    columns=(
        *ORIGIN,
        "setting",
        "case",
        "master_rows",
        "batch_rows",
        "partitions",
        "memory_bytes",
        "contender",
        "repetition",
        "warm_batches",
        "batches",
        "rows_out",
        "add_batch_seconds",
        "add_batch_seconds_max",
        "trigger_seconds",
        "trigger_seconds_max",
        "prepare_seconds",
        "slowest_to_median",
        "rows_to_median",
        "held_bytes",
        "load_average",
        "failure",
        "metrics",
    ),
    part="setting",
)
