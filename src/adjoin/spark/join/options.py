"""What the operator of a bucket is made from, as plain data that travels to executors and their hosts."""

import base64
import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any

import pyarrow as pa

from adjoin.errors import BudgetError
from adjoin.keys.predicate import Distance
from adjoin.streamjoin.base.spec import LEFT, RIGHT
from adjoin.streamjoin.diner import DINER

SIDES = ("left", "right")
PRESERVED = {
    "inner": (),
    "left": (LEFT,),
    "right": (RIGHT,),
    "full": (LEFT, RIGHT),
    "semi": (),
    "anti": (LEFT,),
}
"""The sides whose rows without a partner are returned."""
_ZONE = re.compile(r"\btz=[^\]]*")
_MICROSECOND = datetime.timedelta(microseconds=1)
_MAY_CHANGE = ("memory_bytes", "spill", "block_bytes", "buckets")
"""Options that may change from one start of a query to the next, or are checked elsewhere."""


@dataclass(frozen=True)
class JoinOptions:
    """The arguments of a join of two streams.

    Attributes:
        left: Schema of the left input.
        right: Schema of the right input.
        on: The key: each left column with its right column.
        how: "inner", "left", "right", "full", "semi" or "anti".
        within: The right key is at most this far from the left key.
        between: The right key lies between these two left columns.
        time: The columns with the times that the bound is about, one of each side.
        before: How much earlier than the left time the right time may be; None: any time.
        after: How much later it may be; None: any time.
        watermarked: The column of each side by whose watermark rows are late; None if it has none.
        suffix: Appended to a right column whose name the left has too.
        memory_bytes: Budget of one operator.
        block_bytes: The largest row that an operator takes, about; None to choose by the memory.
        buckets: How many operators share the memory of the join.
        spill: Directory for what memory cannot hold; None for the system's temporary directory.
    """

    left: pa.Schema
    right: pa.Schema
    on: Mapping[str, str]
    how: str
    within: Distance | None
    between: tuple[str, str] | None
    time: tuple[str, str] | None
    before: datetime.timedelta | None
    after: datetime.timedelta | None
    watermarked: tuple[str | None, str | None]
    suffix: str
    memory_bytes: int
    spill: str | None
    block_bytes: int | None = None
    buckets: int = 1

    @property
    def schemas(self) -> tuple[pa.Schema, pa.Schema]:
        """The schemas of both inputs."""
        return self.left, self.right

    @property
    def preserved(self) -> tuple[int, ...]:
        """The sides whose rows without a partner are returned."""
        return PRESERVED[self.how]

    @property
    def can_expire(self) -> bool:
        """Whether watermarks and the bound let rows leave."""
        return self.time is not None and self.time == self.watermarked

    @property
    def may_be_divided(self) -> bool:
        """Whether there can be several buckets: each left row must then be in one, or only be joined."""
        is_equality = self.within is None and self.between is None
        return is_equality or self.how in {"inner", "right"}

    def key_columns(self, side: int) -> Sequence[str]:
        """The columns of a side without which a row has no partner."""
        if side == LEFT and self.between is not None:
            return self.between
        return tuple(self.on) if side == LEFT else tuple(self.on.values())

    @property
    def before_microseconds(self) -> int | None:
        """How much earlier than the left time the right time may be."""
        return None if self.before is None else self.before // _MICROSECOND

    @property
    def after_microseconds(self) -> int | None:
        """How much later than the left time the right time may be."""
        return None if self.after is None else self.after // _MICROSECOND

    def operator(self) -> DINER:
        """The operator of a bucket."""
        return DINER(
            self.left,
            self.right,
            dict(self.on),
            self.memory_bytes,
            how=self.how,
            results="complete",
            time=self.time,
            before=self.before,
            after=self.after,
            within=self.within,
            between=self.between,
            suffix=self.suffix,
            spill=self.spill,
            block_bytes=self.block_bytes,
        )

    @contextmanager
    def of_all_buckets(self) -> Iterator[None]:
        """Errors about the memory of one operator say what that means for the memory of the join."""
        try:
            yield
        except BudgetError as error:
            if self.buckets == 1:
                raise
            count = self.buckets
            raise BudgetError(
                f"{error}, times {count}: memory= of a join is shared by {count} buckets"
            ) from error

    def described(self) -> dict[str, Any]:
        """The join in words, by argument: what a checkpoint must agree with."""
        plain = {name: value for name, value in self.to_json().items() if name not in _MAY_CHANGE}
        return {**plain, "left": _columns(self.left), "right": _columns(self.right)}

    def to_json(self) -> dict[str, Any]:
        """The options as JSON."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> "JoinOptions":
        """The options from what `to_json` returned."""
        return cls(**{name: _restored(value) for name, value in saved.items()})


def _columns(schema: pa.Schema) -> list[str]:
    """The columns in words. The session's time zone is only a label: times are stored in UTC."""
    return [f"{field.name}: {_ZONE.sub('tz=UTC', str(field.type))}" for field in schema]


def _plain(value: Any) -> Any:
    """The value in types of JSON; others become an object with their kind."""
    if isinstance(value, pa.Schema):
        return {"schema": base64.b64encode(value.serialize().to_pybytes()).decode()}
    if isinstance(value, datetime.timedelta):
        return {"microseconds": value // _MICROSECOND}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, tuple):
        return {"tuple": list(value)}
    if isinstance(value, Mapping):
        return {"pairs": [list(pair) for pair in value.items()]}
    return value


def _restored(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, held),) = value.items()
    if kind == "schema":
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(held)))
    if kind == "microseconds":
        return datetime.timedelta(microseconds=held)
    if kind == "decimal":
        return Decimal(held)
    return tuple(held) if kind == "tuple" else dict(held)
