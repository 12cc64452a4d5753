"""What adjoin's cost models predict for a setting."""

from adjoin.semistream.models import hybridjoin, inlj, meshjoin, xhybridjoin
from adjoin.semistream.models.iteration import loop_seconds
from adjoin.semistream.models.popularity import Popularity
from benchmarks.figures.masters import PAGE_BYTES
from benchmarks.figures.queues.setting import Scaled


def predicted_loop(scaled: Scaled) -> tuple[float, float, float]:
    """Rows and seconds per iteration, and rows that pinned pages answer in it."""
    algorithm = scaled.setting.algorithm
    if algorithm == "inlj":
        return 1.0, 1 / inlj.service_rate(scaled.constants, PAGE_BYTES), 0.0
    if algorithm == "meshjoin":
        rows, seconds = meshjoin.loop(scaled.sizes, scaled.constants, scaled.page_counts[0] * PAGE_BYTES)
        return rows, seconds, 0.0
    rows, probed_pages = _rows(scaled)
    disk_pages, pinned_pages = scaled.page_counts
    pinned_share = float(Popularity(scaled.weights).weights[:pinned_pages].sum()) if pinned_pages else 0.0
    rows_per_page = scaled.master.rows / scaled.master.pages
    seconds = loop_seconds(scaled.constants, disk_pages * PAGE_BYTES, probed_pages * rows_per_page, rows)
    return rows, seconds, pinned_share * rows


def _rows(scaled: Scaled) -> tuple[float, int]:
    """Rows per iteration, and pages whose rows are looked up in it."""
    form, waiting = scaled.setting.model, float(scaled.waiting_rows)
    disk_pages, pinned_pages = scaled.page_counts
    pages, rows = scaled.master.pages, float(scaled.master.rows)
    if scaled.setting.algorithm == "hybridjoin":
        if form == "paper":
            return hybridjoin.paper_input_rows(waiting, disk_pages / pages * rows, rows), disk_pages
        return hybridjoin.input_rows(scaled.weights, waiting, disk_pages), disk_pages
    if form == "corrected":
        answered = xhybridjoin.input_rows(
            scaled.weights, waiting, disk_pages, pinned_pages, pinned_rows_wait=False
        )
        return answered, disk_pages
    share = float(scaled.weights[:pinned_pages].sum())
    predicted = xhybridjoin.paper_input_rows if form == "paper" else xhybridjoin.mean_input_rows
    return predicted(waiting, share, (pages - pinned_pages) / disk_pages), disk_pages + pinned_pages
