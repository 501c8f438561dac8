"""Sensor readings: from the XML of a payload to typed columns."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from qos.spark.readings import readings, unreadable
from qos.spark.sensor_data import NAMESPACE, parse_fields

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]


def fields(inner: str, node: str = "nodeId='pump 1' sourceId='cellar'") -> str:
    """A payload with one node that was read at noon."""
    return (
        f"<fields xmlns='{NAMESPACE}' seqnr='4' done='true'><node {node}>"
        f"<timestamp value='2026-01-05T12:00:00Z'>{inner}</timestamp></node></fields>"
    )


EXAMPLE = fields(
    "<numeric name='Temperature' momentary='true' automaticReadout='true' value='-23.40'"
    " unit='°C'/><int name='Starts' value='+12' unit=''/><boolean name='On' value='true'/>"
    "<string name='Type' identity='true' missing='false' value=' a &lt;b&gt; '/>"
    "<unknown xmlns='urn:example' name='x' value='1'/>"
)


def test_each_value_is_a_row_with_its_number_and_its_unit(spark: SparkSession) -> None:
    """The fields of XEP-0323, in columns for computations."""
    items = spark.createDataFrame([("i1", EXAMPLE)], "item string, payload string")
    noon = datetime(2026, 1, 5, 12)  # noqa: DTZ001 - as Spark returns it
    found = [tuple(row) for row in readings(items).collect()]
    common = ("i1", "pump 1", "cellar", noon)
    assert found == [
        (
            *(*common, "Temperature", "numeric", -23.4, "-23.40", "°C"),
            ["automaticReadout", "momentary"],
        ),
        (*common, "Starts", "int", 12.0, "+12", None, []),
        (*common, "On", "boolean", None, "true", None, []),
        (*common, "Type", "string", None, " a <b> ", None, ["identity"]),
    ]
    assert unreadable(items).count() == 0


def test_what_cannot_be_read_is_told_and_the_rest_is_read(spark: SparkSession) -> None:
    """One bad value of one sensor must not cost the values of the others."""
    half = fields("<numeric name='a' value='hot'/><numeric name='b' value='1'/>")
    rows = [("half", half), ("none", None), ("text", "21.5"), ("good", EXAMPLE)]
    items = spark.createDataFrame(rows, "item string, payload string")
    assert {row["item"]: row["problem"] for row in unreadable(items).collect()} == {
        "half": "node pump 1, a: no number: 'hot'",
        "none": "no XML: no element found: line 1, column 0",
        "text": "no XML: syntax error: line 1, column 0",
    }
    read = {(row["item"], row["field"]) for row in readings(items).collect()}
    assert ("half", "b") in read
    assert len(read) == 5


def test_a_time_that_python_cannot_collect_is_told_and_the_rest_is_collected(
    spark: SparkSession,
) -> None:
    """A device without a clock has the year 1.

    It must not cost the readings of others.
    """
    value = "<numeric name='a' value='1'/>"
    times = {
        "0001-01-01T00:00:00Z": False,
        "1899-12-31T23:59:59.999999Z": False,
        "1900-01-01T01:00:00+02:00": False,
        "1900-01-01T00:00:00Z": True,
        "9998-12-31T23:59:59.999999Z": True,
        "9999-01-01T00:00:00": False,
        "9999-12-31T23:59:59Z": False,
    }
    rows = [(at, fields(value).replace("2026-01-05T12:00:00Z", at)) for at in times]
    items = spark.createDataFrame(rows, "item string, payload string")
    read = {row["item"]: row["timestamp"] for row in readings(items).collect()}
    assert read == {
        at: datetime.fromisoformat(at).replace(tzinfo=None)
        for at, is_readable in times.items()
        if is_readable
    }
    assert {row["item"]: row["problem"] for row in unreadable(items).collect()} == {
        at: f"node pump 1: a time not from 1900 to 9998: {at!r}"
        for at, is_readable in times.items()
        if not is_readable
    }


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        ("<fields/>", f"not `fields` of {NAMESPACE}: fields"),
        (f"<node xmlns='{NAMESPACE}'/>", f"not `fields` of {NAMESPACE}"),
        (fields("<numeric name='a' value='1'/>", node=""), "a node has no nodeId"),
        (fields("<numeric value='1'/>"), "node pump 1: a value without name or value"),
        (fields("<numeric name='a'/>"), "node pump 1: a value without name or value"),
        (
            EXAMPLE.replace("12:00:00Z", "noon"),
            "node pump 1: no time: '2026-01-05Tnoon",
        ),
        (
            EXAMPLE.replace("2026-01-05T12:00:00Z", "0001-01-01T00:00:00+09:00"),
            "a time not from 1900 to 9998",
        ),
        (fields("<numeric name='a' value='1e999'/>"), "a: no number: '1e999'"),
        (fields("<numeric name='a' value='NaN'/>"), "a: no number: 'NaN'"),
        (fields("<int name='a' value='1_000'/>"), "a: no number: '1_000'"),
        ("<!DOCTYPE x [<!ENTITY y 'z'>]><x>&y;</x>", "no XMPP"),
    ],
)
def test_the_first_thing_that_is_wrong_is_named(payload: str, problem: str) -> None:
    """Who reads it has to find the sensor."""
    found = parse_fields(payload)
    assert problem in (found.problem or "")
    assert not found.readings


def test_a_time_without_zone_is_utc_and_any_other_becomes_it() -> None:
    """Sensors write both."""
    value = "<numeric name='a' value='1'/>"
    for written in ("2026-01-05T12:00:00", "2026-01-05T14:00:00+02:00"):
        payload = fields(value).replace("2026-01-05T12:00:00Z", written)
        (reading,) = parse_fields(payload).readings
        assert reading.timestamp == datetime(2026, 1, 5, 12, tzinfo=UTC)


@given(st.text() | st.text(alphabet="<>/='\"&;! fieldsnodetimestamp0129.").map(fields))
def test_no_payload_raises(payload: str) -> None:
    """A peer writes it, and it may be anything."""
    found = parse_fields(payload)
    assert found.readings or found.problem or f"'{NAMESPACE}'" in payload
