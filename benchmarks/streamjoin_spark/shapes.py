"""The joins that are measured: what their inputs look like, and which rows belong together."""

from dataclasses import dataclass, field

ROW_BYTES = 100
WITHIN = 4 / 64
"""Half the width of the band; prices are multiples of 1/64, so that no comparison is rounded."""
BOUND_SECONDS = 3600
DELAY_SECONDS = 60
"""The delay of the watermarks; rows arrive at most `OUT_OF_ORDER_SECONDS` out of order, so none is late."""
OUT_OF_ORDER_SECONDS = 50
CHAIN_ON = ("r1.a = r2.a", "r2.b = r3.b", "r3.c = r4.c")
_FACTOR, _PRIME = 1_000_003, 2_147_483_647


@dataclass(frozen=True)
class Shape:
    """A join of two or more inputs.

    Attributes:
        inputs: The columns of each input, as Spark's DDL; `<...>_row` numbers its rows.
        condition: Which rows belong together, as SQL over the inputs' names.
        output: The columns of the result, in a fixed order.
        rows: The row numbers among them, which name a result.
        times: The event-time column of each input, where a time bound lets state go.
    """

    inputs: dict[str, str]
    condition: str
    output: tuple[str, ...]
    rows: tuple[str, ...]
    times: dict[str, str] = field(default_factory=dict)

    def columns(self, name: str) -> list[str]:
        """The names of an input's columns."""
        return [column.split()[0] for column in self.inputs[name].split(", ")]

    def pairs(self) -> str:
        """SQL for a number that depends on which rows have met; the same in Spark, DuckDB and Java."""
        mixed = f"{self.rows[0]} % {_PRIME}"
        for row in self.rows[1:]:
            mixed = f"(({mixed}) * {_FACTOR} + {row}) % {_PRIME}"
        return mixed

    def values(self) -> str:
        """Spark's SQL for a number that depends on all columns of the result."""
        return f"pmod(xxhash64({', '.join(self.output)}), {_PRIME})"


def _bound(earlier: str, later: str) -> str:
    return f"{later} >= {earlier} AND {later} <= {earlier} + INTERVAL {BOUND_SECONDS} SECONDS"


_EQUALITY = Shape(
    inputs={
        "orders": "order_id long, ordered_at timestamp, order_row long, order_payload string",
        "payments": "order_id long, paid_at timestamp, payment_row long, payment_payload string",
    },
    condition=f"orders.order_id = payments.order_id AND {_bound('ordered_at', 'paid_at')}",
    output=(
        "order_id",
        "order_row",
        "ordered_at",
        "order_payload",
        "payment_row",
        "paid_at",
        "payment_payload",
    ),
    rows=("order_row", "payment_row"),
    times={"orders": "ordered_at", "payments": "paid_at"},
)
_BAND = Shape(
    inputs={
        "offers": "price double, offered_at timestamp, offer_row long, offer_payload string",
        "bids": "price double, bid_at timestamp, bid_row long, bid_payload string",
    },
    condition=(
        f"bids.price >= offers.price - {WITHIN} AND bids.price <= offers.price + {WITHIN} "
        f"AND {_bound('offered_at', 'bid_at')}"
    ),
    output=("offer_row", "offered_at", "offer_payload", "bid_row", "bid_at", "bid_payload"),
    rows=("offer_row", "bid_row"),
    times={"offers": "offered_at", "bids": "bid_at"},
)
_RANGE = Shape(
    inputs={
        "points": "position long, point_row long, point_payload string",
        "spans": "lower long, upper long, span_row long, span_payload string",
    },
    condition="position >= lower AND position <= upper",
    output=("position", "point_row", "point_payload", "lower", "upper", "span_row", "span_payload"),
    rows=("point_row", "span_row"),
)
_CHAIN = Shape(
    inputs={
        "r1": "a long, row1 long, payload1 string",
        "r2": "a long, b long, row2 long, payload2 string",
        "r3": "b long, c long, row3 long, payload3 string",
        "r4": "c long, row4 long, payload4 string",
    },
    condition=" AND ".join(CHAIN_ON),
    output=(*(f"row{n}" for n in range(1, 5)), *(f"payload{n}" for n in range(1, 5))),
    rows=tuple(f"row{n}" for n in range(1, 5)),
)
SHAPES = {"equality": _EQUALITY, "band": _BAND, "range": _RANGE, "chain": _CHAIN}
