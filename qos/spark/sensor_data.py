"""Sensor readings in a payload: XEP-0323 `fields`, one value after the other.

This module knows the XML, but neither Spark nor the source of the payload.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

__all__ = ["NAMESPACE", "Reading", "SensorData", "parse_fields"]

#: XEP-0323 §13.
NAMESPACE: Final = "urn:xmpp:iot:sensordata"

#: XEP-0323 §4: the elements of a value; those in `_NUMBERS` have a number.
_NUMBERS: Final = frozenset({"numeric", "int", "long"})
_KINDS: Final = _NUMBERS | {
    *("boolean", "date", "dateTime", "enum", "string", "time", "timeSpan"),
}

#: The attributes that describe a value; any other attribute that is true is one of its
#: flags.
_NO_FLAGS: Final = frozenset({"name", "value", "unit", "dataType", "stringIds"})

#: The numbers of xs:double, without its words, and of xs:decimal; Python's float
#: accepts more.
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")

#: The allowed years of a time, both as written and in UTC. Python cannot convert a time
#: at either end of its calendar to every time zone, so that `collect()` fails; and
#: files of Spark 3 are ambiguous before 1900
#: (`spark.sql.parquet.datetimeRebaseModeInWrite`).
_YEARS: Final = range(1900, 9999)


class Reading(NamedTuple):
    """One value of one sensor.

    Attributes:
        node: the nodeId.
        source: its sourceId, or None.
        timestamp: the time of the reading, in the years 1900 to 9998. A time without a
            time zone is taken as UTC.
        field: its name.
        kind: the name of its element: numeric, int, long, boolean, date, dateTime,
            enum, string, time or timeSpan.
        value: the number, for the first three kinds; else None.
        text: the value as it was written.
        unit: of a numeric one.
        flags: its other properties, by name: momentary, missing, automaticReadout…
    """

    node: str
    source: str | None
    timestamp: datetime
    field: str
    kind: str
    value: float | None
    text: str
    unit: str | None
    flags: list[str]


class SensorData(NamedTuple):
    """A payload: all its readable readings, and the first problem of the others."""

    readings: list[Reading]
    problem: str | None


def parse_fields(payload: str) -> SensorData:
    """The readings of a payload, and its first problem.

    No payload raises an error; all that can be read is returned.
    """
    # RFC 6120 §11.1: XMPP has no document types, and so no custom entities.
    if "<!" in payload:
        return SensorData([], "no XMPP: it has a comment or a document type")
    try:
        fields = ET.fromstring(payload)  # noqa: S314 - without entities, see above
    except ET.ParseError as error:
        return SensorData([], f"no XML: {error}")
    if fields.tag != f"{{{NAMESPACE}}}fields":
        return SensorData([], f"not `fields` of {NAMESPACE}: {fields.tag:.100}")
    readings: list[Reading] = []
    problems: list[str] = []
    for node in fields.iterfind(f"{{{NAMESPACE}}}node"):
        for at in node.iterfind(f"{{{NAMESPACE}}}timestamp"):
            _read(node, at, readings, problems)
    return SensorData(readings, problems[0] if problems else None)


def _read(
    node: ET.Element, at: ET.Element, readings: list[Reading], problems: list[str]
) -> None:
    """Read the values of a node at one time."""
    node_id = node.get("nodeId")
    if node_id is None:
        problems.append("a node has no nodeId")
        return
    try:
        moment = _moment(at.get("value", ""))
    except ValueError as error:
        problems.append(f"node {node_id:.100}: {error}: {at.get('value')!r:.100}")
        return
    for element in at:
        namespace, _, kind = element.tag.rpartition("}")
        if namespace != f"{{{NAMESPACE}" or kind not in _KINDS:
            continue  # XMPP: unknown elements are ignored.
        field, text = element.get("name"), element.get("value")
        if field is None or text is None:
            problems.append(f"node {node_id:.100}: a value without name or value")
            continue
        value = _number(text) if kind in _NUMBERS else None
        if kind in _NUMBERS and value is None:
            problems.append(
                f"node {node_id:.100}, {field:.100}: no number: {text!r:.50}"
            )
            continue
        unit = element.get("unit") or None
        source = node.get("sourceId") or None
        readings.append(
            Reading(
                node_id, source, moment, field, kind, value, text, unit, _flags(element)
            )
        )


def _number(text: str) -> float | None:
    """The number of a text, or None, also if it is too large for a double."""
    if not _NUMBER.fullmatch(text.strip()):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def _moment(text: str) -> datetime:
    """The time of a text; the ValueError says what is wrong with it."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("no time") from None
    # Checked before the conversion too, which may leave Python's calendar.
    if moment.year in _YEARS:
        zone = moment.tzinfo or UTC
        moment = moment.replace(tzinfo=zone).astimezone(UTC)
    if moment.year not in _YEARS:
        raise ValueError(f"a time not from {_YEARS[0]} to {_YEARS[-1]}")
    return moment


def _flags(element: ET.Element) -> list[str]:
    """The attributes of an element that are true and are flags of its value."""
    return sorted(
        name
        for name, value in element.items()
        if value in {"true", "1"} and name not in _NO_FLAGS and "}" not in name
    )
