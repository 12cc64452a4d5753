"""The join specification, validated once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from adjoin import arguments
from adjoin.arrow.encodings import Orders
from adjoin.errors import OptionError, SchemaError
from adjoin.keys.predicate import Between, Distance, Equality, Predicate, Within
from adjoin.master.master import Master
from adjoin.operators.on import On, check_columns, check_distinct, result_schema, with_suffix

HOW = ("inner", "left", "semi", "anti")


@dataclass(frozen=True)
class JoinSpec:
    """Which rows are joined and what the results are.

    Attributes:
        how: inner, left, semi or anti.
        predicate: Which master keys a stream row matches.
        columns: Names of the master columns that are emitted; none for semi and anti joins.
        verified: The master's key columns if they must be compared after a match, because keys are hashed.
        suffix: Appended to a master column if the stream has a column of the same name.
        orders: The order of ordered dictionaries in the stream.
    """

    how: str
    predicate: Predicate
    columns: tuple[str, ...]
    verified: tuple[str, ...]
    suffix: str
    orders: Orders = field(default_factory=Orders, compare=False)

    @property
    def gives_master_columns(self) -> bool:
        return self.how in ("inner", "left")

    @property
    def keeps_unmatched(self) -> bool:
        return self.how in ("left", "anti")

    def output_schema(self, stream: pa.Schema, master: pa.Schema) -> pa.Schema:
        """The stream's columns, then the master's."""
        check_columns(stream, self.predicate.columns, "the stream")
        check_distinct(stream, "the stream")
        added = [self._master_field(stream, master.field(name)) for name in self.columns]
        return result_schema([*stream, *added], "choose another suffix=")

    def _master_field(self, stream: pa.Schema, field: pa.Field) -> pa.Field:
        field = with_suffix(field, stream.names, self.suffix)
        return field.with_nullable(field.nullable or self.how == "left")


def make_spec(
    master: Master,
    on: On,
    how: str,
    columns: Sequence[str] | None = None,
    within: Distance | None = None,
    between: tuple[str, str] | None = None,
    suffix: str = "_master",
) -> JoinSpec:
    """Validate the arguments of an operator against the master."""
    if not isinstance(how, str) or how not in HOW:
        raise OptionError(f"how={how!r} is not one of {', '.join(HOW)}")
    for name, given in (("columns", columns), ("between", between)):
        if given is not None:
            arguments.names(name, given)
    arguments.string("suffix", suffix)
    if within is not None and between is not None:
        raise OptionError("give within= or between=, not both")
    pairs = _key_pairs(master, on)
    predicate: Predicate
    if between is not None:
        if len(between) != 2 or len(pairs) != 1:
            raise OptionError(f"between={between!r} must be two stream columns, and on= the master's key")
        predicate = Between(master.codec, (between[0], between[1]))
    elif within is not None:
        predicate = Within(master.codec, next(iter(pairs.values())), within)
    else:
        predicate = Equality(master.codec, tuple(pairs[key] for key in master.key))
    same_name = {key for key, column in pairs.items() if key == column} if predicate.is_equality else set()
    wanted = master.schema.names if columns is None else list(columns)
    check_columns(master.schema, wanted, "the master")
    chosen = tuple(name for name in dict.fromkeys(wanted) if name not in same_name)
    verified = () if master.codec.ordered else master.key
    return JoinSpec(how, predicate, chosen if how in ("inner", "left") else (), verified, suffix)


def _key_pairs(master: Master, on: On) -> dict[str, str]:
    """The stream column for every key column of the master."""
    pairs = arguments.key_pairs(on)
    if set(pairs) != set(master.key):
        raise SchemaError(
            f"on={on!r} must name the key of the master, {list(master.key)}; where the stream's names differ "
            f'write on={{"stream column": "{master.key[0]}"}}'
        )
    return pairs
