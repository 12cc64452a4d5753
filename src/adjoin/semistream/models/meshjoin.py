"""The cost model of MESHJOIN."""

from adjoin.semistream.models.iteration import loop_seconds
from adjoin.semistream.models.setting import CostConstants, Number, Setting


def input_rows(waiting_rows: Number, partitions: Number) -> Number:
    """Stream rows that an iteration reads and an iteration finishes: w = h_S / k.

    Example:
        >>> input_rows(10_000.0, 200.0)
        50.0
    """
    return waiting_rows / partitions


def loop(setting: Setting, constants: CostConstants, buffer_bytes: float) -> tuple[float, float]:
    """Rows and seconds of an iteration that reads this many bytes of the master.

    How it works: the master is read over and over in k = N_R / b parts; a row leaves after all of them.

    Example:
        >>> loop(Setting(50e6, 2e6, 120, 32), CostConstants(8e-3, 1e-8), 2e6)
        (12500.0, 0.028)
    """
    rows = input_rows(setting.waiting_rows(buffer_bytes), setting.master_bytes / buffer_bytes)
    return rows, loop_seconds(constants, buffer_bytes, buffer_bytes / setting.master_row_bytes, rows)


def service_rate(setting: Setting, constants: CostConstants, buffer_bytes: float) -> float:
    """Stream rows answered per second, whatever they want (mu).

    Example:
        >>> from adjoin.semistream.models.iteration import best_buffer_bytes
        >>> paper, disk = Setting(50e6, 2e6, 120, 32), CostConstants(8e-3, 1e-8)
        >>> best = best_buffer_bytes(paper, disk)
        >>> service_rate(paper, disk, best) > max(service_rate(paper, disk, best * f) for f in (0.9, 1.1))
        True

    Reference:
        N. Polyzotis et al., Meshing streaming updates with persistent data in an active data warehouse, IEEE
        TKDE 20(7), 2008; HYBRIDJOIN, section 3.
    """
    rows, seconds = loop(setting, constants, buffer_bytes)
    return rows / seconds


def processing_seconds(setting: Setting, constants: CostConstants, buffer_bytes: float) -> float:
    """Mean time from a row's entry to its match, with a full stream: half of a pass over the master.

    Example:
        >>> round(processing_seconds(Setting(50e6, 2e6, 120, 32), CostConstants(8e-3, 1e-8), 2e6), 2)
        1.68
    """
    partitions = setting.master_bytes / buffer_bytes
    return partitions * constants.scan_seconds(buffer_bytes) / 2


def waiting_seconds(rows: float, rows_per_second: float) -> float:
    """Mean time that a row waits until an iteration's rows are complete, if the stream is slow.

    Departures:
        The paper's formula is lost in print; this is the mean over rows that arrive at equal distances.

    Example:
        >>> waiting_seconds(1000, 125)
        4.0
    """
    return rows / rows_per_second / 2
