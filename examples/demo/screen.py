"""What the demo prints while it runs, and the final table."""

import time
from dataclasses import dataclass

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from rich.console import Console
from rich.table import Table

from adjoin import EnrichProgress
from examples.demo.comparison import Comparison
from examples.demo.pipeline import CLOCK


@dataclass
class Seen:
    """What the micro-batches reported so far."""

    rows: int = 0
    hits: int = 0
    pages: int = 0
    peak_bytes: int = 0
    memory_bytes: int = 0
    latest: EnrichProgress | None = None
    seconds: float = 0.0
    latency_seconds: float = 0.0
    worst_latency_seconds: float = 0.0


class Screen(StreamingQueryListener):
    """Follows the query `sales` and prints a line for every micro-batch."""

    def __init__(self, console: Console) -> None:
        self.seen = Seen()
        self._console = console

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 (Spark's name)
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 (Spark's name)
        if event.progress.name != "sales":
            return
        for progress in EnrichProgress.of(event.progress):
            self._add(progress, event.progress.durationMs["triggerExecution"] / 1000)
            self._note_latency(event.progress.observedMetrics.get(CLOCK))
            self._console.print(self._line())

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 (Spark's name)
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 (Spark's name)
        pass

    def _add(self, progress: EnrichProgress, seconds: float) -> None:
        seen = self.seen
        seen.latest = progress
        seen.rows += progress.rows_in
        seen.hits += progress.cache_hits
        seen.pages += progress.pages_read
        seen.peak_bytes = max(seen.peak_bytes, progress.peak_bytes)
        seen.memory_bytes = progress.memory_bytes
        seen.seconds = seconds

    def _note_latency(self, clock: object) -> None:
        oldest = getattr(clock, "oldest", None)
        if oldest is not None:
            seconds = time.time() - oldest.timestamp() if hasattr(oldest, "timestamp") else 0.0
            self.seen.latency_seconds = seconds
            self.seen.worst_latency_seconds = max(self.seen.worst_latency_seconds, seconds)

    def _line(self) -> str:
        seen, progress = self.seen, self.seen.latest
        assert progress is not None
        hits = progress.cache_hits / max(1, progress.rows_in)
        return (
            f"{progress.rows_in:7,} sales {progress.rows_in / seen.seconds:8,.0f}/s"
            f" | {seen.latency_seconds:4.1f} s old | {hits:4.0%} unread"
            f" | {progress.peak_bytes / 2**20:4.0f} of {progress.memory_bytes / 2**20:.0f} MB"
            f" | v{progress.master_version}"
        )


def summary(seen: Seen, facts: dict[str, int], versions: int, comparison: Comparison) -> Table:
    """The final table."""
    table = Table(title="Sales enriched with products, keyed, and written once", show_header=False)
    table.add_row("facts written", f"{facts['rows']:,} of {facts['sold']:,} sales, each once")
    table.add_row("new products", f"{facts['new_keys']:,} received a warehouse key")
    table.add_row("master", f"{comparison.master_rows:,} products, {versions} versions during the run")
    table.add_row(
        "answered without a read", f"{seen.hits / max(1, seen.rows):.0%}, {seen.pages:,} pages read"
    )
    table.add_row("memory", f"at most {seen.peak_bytes / 2**20:.1f} MB of {seen.memory_bytes / 2**20:.1f} MB")
    table.add_row("oldest sale of a batch", f"written after at most {seen.worst_latency_seconds:.1f} s")
    table.add_section()
    table.add_row(
        f"{comparison.batch_rows:,} sales per batch, median",
        f"adjoin {comparison.ours_seconds:.2f} s, Spark's own join {comparison.spark_seconds:.2f} s: "
        f"{comparison.spark_seconds / comparison.ours_seconds:.1f} times faster",
    )
    return table
