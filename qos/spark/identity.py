"""The identity of a row: the columns that a user names by the option `id`.

Spark does not keep the number of a partition, nor the rows in it: a batch that is
repeated after a restart may be divided in another way. So nothing that Spark numbers is
part of an identity. Rows with equal values in these columns are one row, in whichever
task, batch or query they are. `*` names all columns: then only equal rows are one.

With `repeats = "allowed"` rows have no identity: each is written at least once.
"""

from __future__ import annotations

import argparse
import datetime
import decimal
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from qos.spark.options import BadOption

if TYPE_CHECKING:
    from pyspark.sql import Row

__all__ = ["BadIdentity", "Identity", "Json", "identity_of"]

ALL: Final = "*"

#: A value as JSON, by which it is told from all others.
Json: TypeAlias = "bool | int | str | list[Json] | dict[str, Json] | None"

#: The types whose values come to Python as they are in Spark.
_PLAIN: Final = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    TimestampNTZType,
)

#: A name in the option, and the comma behind it.
_NAME: Final = re.compile(
    r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<bare>[^`,]*?))\s*(?P<comma>,|\Z)"
)

#: More digits than a decimal of Spark has, so that none is rounded.
_DIGITS = decimal.Context(prec=80)


class BadIdentity(ValueError):
    """A row cannot be told from others; the text says why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What identifies a row; made by the driver, and copied to the tasks.

    Attributes:
        columns: those whose values identify it. None of them: each row brings its id.
        is_whole: they are all columns. Then null is a value like any other. The null of
            a named column is an unknown id, and rows of unknown ids are not one row.
        run: the option of this name: rows of another run are other rows.
        repeats: rows have no identity.
    """

    columns: tuple[str, ...]
    is_whole: bool
    run: str | None
    repeats: bool

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that the user has named."""
        return () if self.is_whole else self.columns

    def values(self, row: Row) -> dict[str, Json]:
        """The identity of a row.

        Raises:
            BadIdentity: the row has none.
        """
        if not self.columns:
            raise BadIdentity("it has no id of its own, and option id is missing")
        values = {column: _plain(row[column]) for column in self.columns}
        for column in self.named:
            if values[column] is None:
                raise BadIdentity(f"its id column {column!r} is null")
        return values


def identity_of(
    name: str,
    options: argparse.Namespace,
    schema: StructType,
    *,
    own: str | None = None,
) -> Identity:
    """The identity that the options of a sink name.

    Args:
        name: of the sink.
        options: see `qos.spark.options.identity_in`.
        schema: of the rows.
        own: the column in which a row may bring its id, if there is one.

    Raises:
        BadOption: no identity is named, or it is none; in one line.
    """
    option, repeats = options.id, options.repeats is not None
    if option is None and not repeats and own not in schema.fieldNames():
        raise BadOption(
            f"{name}: option id: it is missing, and Spark may write a batch again; "
            "name the column or columns that identify a row, or '*' for all (equal rows "
            "are then one); with repeats = 'allowed' rows may come more than once"
        )
    if option is not None and repeats:
        raise BadOption(f"{name}: option repeats: rows with an id are not repeated")
    names: list[str] = []
    if option is not None and option.strip() != ALL:
        try:
            names = _names(option)
        except ValueError as error:
            raise BadOption(f"{name}: option id: {option!r} {error}") from None
        _check(name, names, schema)
    is_whole = repeats or (option is not None and not names)
    columns = schema.fieldNames() if is_whole else names
    return Identity(tuple(columns), is_whole, options.run, repeats)


def _check(name: str, columns: Sequence[str], schema: StructType) -> None:
    """Refuse names that are no columns, and columns that have no certain value."""
    for column in columns:
        if column not in schema.fieldNames():
            raise BadOption(
                f"{name}: option id: there is no column {column!r} among "
                f"{', '.join(schema.fieldNames())}"
            )
        if columns.count(column) > 1:
            raise BadOption(f"{name}: option id: it names column {column!r} twice")
        refusal = _refusal(schema[column].dataType)
        if refusal is not None:
            raise BadOption(f"{name}: option id: column {column!r} {refusal}")


def _refusal(kind: DataType) -> str | None:
    """Why values of this type identify no row, or None."""
    if isinstance(kind, TimestampType):
        # Python gets the local time, without a zone: an hour of each year comes twice,
        # and executors may have several zones.
        return (
            "is a timestamp, which Python gets in local time: name a column with "
            "unix_micros(…) of it"
        )
    if isinstance(kind, StructType):
        parts = [field.dataType for field in kind.fields]
    elif isinstance(kind, ArrayType):
        parts = [kind.elementType]
    elif isinstance(kind, MapType):
        parts = [kind.keyType, kind.valueType]
    elif isinstance(kind, _PLAIN):
        parts = []
    else:
        return f"cannot be a {kind.simpleString()}: name a column with a string of it"
    return next(filter(None, map(_refusal, parts)), None)


def _plain(value: object) -> Json:
    """A value as JSON. Two values have the same JSON only if Spark says they are equal.

    A type is named where JSON has no own, or where a list could be meant otherwise.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            # As Spark groups: a zero has no sign, and all NaN are equal.
            return ["float", (value + 0.0).hex()]
        case decimal.Decimal():
            return ["decimal", str(_DIGITS.normalize(value))]
        case bytes() | bytearray():
            return ["binary", value.hex()]
        case datetime.date():  # a datetime, too
            return ["time", value.isoformat()]
        case dict():
            pairs: list[Json] = [
                [_plain(key), _plain(content)] for key, content in value.items()
            ]
            # A map has no order.
            return ["map", sorted(pairs, key=repr)]
        case tuple():
            return ["struct", list(map(_plain, value))]
        case list():
            return ["array", list(map(_plain, value))]
    raise AssertionError(f"{type(value)} is refused by _refusal")


def _names(option: str) -> list[str]:
    """The names in a list of columns.

    A comma separates columns. A name with a comma, a backquote or spaces at its ends
    is in backquotes, as in Spark's SQL. A dot is a character like any other.

    Raises:
        ValueError: it is no such list; the text says why.
    """
    names: list[str] = []
    end, more = 0, True
    while more:
        match = _NAME.match(option, end)
        if match is None:
            raise ValueError("is no list of columns: a backquote is in the wrong place")
        quoted, bare = match["quoted"], match["bare"]
        if quoted is None and not bare:
            raise ValueError("has an empty name")
        if bare == ALL:
            raise ValueError("has '*', which is all columns, beside others")
        names.append(bare if quoted is None else quoted.replace("``", "`"))
        end, more = match.end(), match["comma"] == ","
    return names
