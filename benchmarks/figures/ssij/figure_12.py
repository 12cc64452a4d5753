"""How many rows are looked up together."""

from benchmarks.figures.figure import REAL, Curves, Figure, Sweep, Verdict
from benchmarks.figures.measures import service_rate
from benchmarks.figures.ssij.setting import LOCAL, PAPER


def verdict(curves: Curves) -> Verdict:
    """A rise that ends."""
    rates = curves["SSIJ"]
    top = max(rates)
    return Verdict(
        holds=rates[0] < 0.7 * top and rates[-1] > 0.8 * top,
        number=f"{rates[0] / top:.2f} of the best at {curves.x[0]:,.0f} rows, {rates[-1] / top:.2f} at "
        f"{curves.x[-1]:,.0f}; best {top:,.0f} rows/s at {curves.x[rates.index(top)]:,.0f}",
        why=(
            "This saves processor time, which the simulated machine charges per row; so it is measured on a "
            "real machine, and its numbers differ from machine to machine."
        ),
    )


FIGURE = Figure(
    name="ssij-12",
    paper=PAPER,
    title="Throughput over the number of rows looked up together, temporal locality, memory 10 %",
    claim="Throughput rises with the number of rows looked up together, up to a point.",
    sweep=Sweep(
        "rows that start an online phase (IB_thresh)",
        (500, 2_000, 10_000, 50_000, 250_000),
        lambda setting, x: setting.with_scaled(input_rows=int(x)),
        is_logarithmic=True,
    ),
    contenders={"SSIJ": LOCAL},
    measure=service_rate,
    verdict=verdict,
    devices=(REAL,),
)
