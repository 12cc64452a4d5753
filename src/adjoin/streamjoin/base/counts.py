"""What a join of streams has done so far."""

from dataclasses import dataclass


@dataclass
class Counts:
    """What has happened since the start."""

    rows_in: int = 0
    results_online: int = 0
    results_reactive: int = 0
    results_cleanup: int = 0
    blocks_flushed: int = 0
    input_buffer_rows_max: int = 0
    input_buffer_rows_at_handover: int = 0
    input_buffer_rows_at_handover_max: int = 0
    reactive_phases: int = 0
    pages_read: int = 0
    seeks: int = 0
    bytes_read: int = 0

    def handed_over(self, rows: int) -> None:
        """A reactive phase ended while so many rows waited."""
        self.reactive_phases += 1
        self.input_buffer_rows_at_handover += rows
        self.input_buffer_rows_at_handover_max = max(self.input_buffer_rows_at_handover_max, rows)
