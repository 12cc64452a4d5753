"""The columns of this benchmark's results."""

from benchmarks.harness.results import ORIGIN, Table

TABLE = Table(
    columns=(
        *ORIGIN,
        "goal",
        "stream",
        "batch_rows",
        "master_rows",
        "memory_bytes",
        "contender",
        "variant",
        "repetition",
        "cap_bytes",
        "cap",
        "warm_rows",
        "batches",
        "rows",
        "rows_out",
        "seconds",
        "rows_per_second",
        "batch_seconds_median",
        "batch_seconds_max",
        "peak_bytes",
        "resident_peak_bytes",
        "failure",
        "metrics",
    ),
    part="goal",
)
