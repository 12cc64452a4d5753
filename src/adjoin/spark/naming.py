"""Columns by name and by position, whatever characters their names contain."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from adjoin.errors import OptionError, SchemaError

_OURS = "_adjoin_"


def column(name: str) -> Column:
    """The column of this name."""
    return F.col("`" + name.replace("`", "``") + "`")


def by_place(df: DataFrame) -> DataFrame:
    """The columns named by position: Spark splits some names on their way to Python."""
    return df.toDF(*(f"c{place}" for place in range(len(df.columns))))


def comparison(df: DataFrame) -> Callable[[str], str]:
    """A function that maps names the session considers equal to the same string."""
    is_sensitive = (df.sparkSession.conf.get("spark.sql.caseSensitive") or "").lower() == "true"
    return str if is_sensitive else str.lower


def found_name(df: DataFrame, name: str, among: Iterable[str]) -> str:
    """The name among these that the session considers equal to `name`, an exact match first, else `name`.

    Raises:
        SchemaError: Several match.
    """
    names = list(dict.fromkeys(among))
    if not isinstance(name, str) or name in names:
        return name  # without reading the setting, which on Connect is a call to the server
    compared = comparison(df)
    same = [other for other in names if compared(other) == compared(name)]
    if len(same) > 1:
        raise SchemaError(
            f"column {name!r} is ambiguous: Spark considers {same} equal; rename them, or set "
            "spark.sql.caseSensitive"
        )
    return same[0] if same else name


def found_names(df: DataFrame, names: Sequence[str], among: Iterable[str]) -> list[str]:
    """As `found_name`, for several names."""
    among = list(among)
    return [found_name(df, name, among) for name in names]


def found_key(
    df: DataFrame, key: Sequence[str], on: str | Sequence[str] | Mapping[str, str]
) -> str | Sequence[str] | Mapping[str, str]:
    """`on` with the column names as the DataFrame and the master's key spell them."""
    pairs = on if isinstance(on, Mapping) else {name: name for name in ([on] if isinstance(on, str) else on)}
    found = {found_name(df, own, df.columns): found_name(df, other, key) for own, other in pairs.items()}
    # If it does not match, keep it as given, for the error message.
    is_whole = set(found.values()) == set(key) and len(found) == len(key) == len(pairs)
    return found if is_whole and (isinstance(on, str | Mapping) or len(on) == len(pairs)) else on


def free_name(df: DataFrame, name: str) -> str:
    """The name, made longer if the DataFrame already has it."""
    compared = comparison(df)
    taken = set(map(compared, df.columns))
    while compared(name) in taken:
        name += "_"
    return name


def refuse_repeated(names: list[str], compared: Callable[[str], str]) -> None:
    """Raise an error if the session considers two of these result columns equal."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(compared(name))
        if other is not None and name.startswith(_OURS):
            raise OptionError(f"column {other!r} has a name that adjoin reserves for itself; rename it")
        if other is not None:
            raise SchemaError(
                f"Spark considers the columns {other!r} and {name!r} equal; rename one, choose another "
                "suffix=, or set spark.sql.caseSensitive"
            )
        seen[compared(name)] = name
