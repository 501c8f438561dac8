"""A journal line: rendered, parsed, refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.journal import (
    EVENTS,
    FIELDS,
    LINE_BYTES_MAX,
    REQUIRED,
    SCHEMA_VERSION,
    BadLine,
    Entry,
    NewerSchema,
    Role,
    parse_line,
    render_line,
)
from qos.journal.schema import INT_MAX, Event, LineMaker, time_of, time_text

NAMES = [field.name for field in FIELDS]

#: Texts that a peer may put into an id; none may break a file.
texts = st.text(max_size=30) | st.sampled_from(
    ["\n", "\u2028", '"', "\\", "\x00", "\ud800"]
)
numbers = st.integers(0, INT_MAX)
events: st.SearchStrategy[Event] = st.sampled_from(
    [event for role in Role for event in EVENTS[role]]
)
#: From the year 2000 on.
times = st.floats(946_684_800, 4_000_000_000).map(lambda at: round(at, 3))


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    event = draw(events)
    values: dict[str, st.SearchStrategy[Any]] = {
        field.name: {"int": numbers, "text": texts, "time": times.map(time_text)}[
            field.kind
        ]
        for field in FIELDS
        if not field.always
    }
    values["level"] = st.sampled_from(["acknowledged", "assured"])
    drawn = {
        name: draw(value if name in REQUIRED[event] else st.none() | value)
        for name, value in values.items()
    }
    if drawn["since"] is None:
        drawn["sent"] = drawn["received"] = None
    return Entry(event, *drawn.values())


def line(**changes: object) -> dict[str, Any]:
    fields = {
        "v": SCHEMA_VERSION,
        "at": "2026-11-21T20:19:04.000000Z",
        "boot": "b1",
        "seq": 1,
        "node": "a@x",
        "role": "sender",
        "event": "accepted",
        "level": "assured",
        "msg_id": "m1",
        "from": "a@x/1",
        "to": "b@x",
        "bytes": 5,
    }
    return {k: v for k, v in (fields | changes).items() if v is not None}


@given(entry=entries(), at=times, seq=numbers, node=texts, boot=texts)
def test_what_the_writer_writes_is_what_a_reader_reads(
    entry: Entry, at: float, seq: int, node: str, boot: str
) -> None:
    """One schema for both; each line is one line of text, whatever it contains."""
    text = LineMaker(node=node, boot=boot).make(at, seq, entry)
    assert text.endswith("}\n")
    assert text.isascii()
    assert text.count("\n") == 1
    fields = parse_line(text)
    assert list(fields) == [name for name in NAMES if name in fields]
    role = next(role for role in Role if isinstance(entry.event, EVENTS[role]))
    expected = {
        "v": SCHEMA_VERSION,
        "at": time_text(at),
        "boot": boot,
        "seq": seq,
        "node": node,
        "role": role.value,
        "event": entry.event.value,
        **dict(zip(NAMES[7:], entry[1:], strict=True)),
    }
    assert fields == {name: one for name, one in expected.items() if one is not None}
    assert render_line(fields) == text.rstrip("\n")
    assert parse_line(render_line(fields).encode()) == fields


@given(at=times)
def test_a_time_is_read_as_it_was_written(at: float) -> None:
    """To the microsecond: latencies are computed from these."""
    assert time_of(time_text(at)) == pytest.approx(at, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        (b"\xff", "no JSON"),
        ("[]", "no JSON object"),
        ("{}", "v is no version"),
        (line(v=True), "v is no version"),
        (line(v=0), "v is no version"),
        (line(boot=None), "has no boot"),
        (line(boot=None, seq=None), "has no boot, seq"),
        (line(seq=1.0), "seq is no int"),
        (line(seq=-1), "seq is no int"),
        (line(attempt=True), "attempt is no int"),
        (line(attempt=2**63), "attempt is no int"),
        (line(seq=2**53), "seq is no int"),
        (line(at="0001-01-01T00:00:00.000000Z"), "at is no time"),
        (line(at="1970-01-01T00:00:07.000000Z"), "at is no time"),
        (line(at="1999-12-31T23:59:59.999999Z"), "at is no time"),
        (line(at="2201-01-01T00:00:00.000000Z"), "at is no time"),
        (line(at="9999-12-31T23:59:59.999999Z"), "at is no time"),
        (line(msg_id=1), "msg_id is no text"),
        (line(at="2026-11-21 20:19:04"), "at is no time"),
        (line(at="2026-02-30T20:19:04.000000Z"), "at is no time"),
        (line(role="spy"), "no event 'accepted' of 'spy'"),
        (line(event="held"), "no event 'held' of 'sender'"),
        (line(condition="x" * LINE_BYTES_MAX), "longer than"),
        (line(bytes=None), "accepted of sender has no bytes"),
        (line(v=1, bytes=None), "accepted of sender has no bytes"),
        (line(event="offered"), "offered of sender has no attempt"),
        (line(role="receiver", event="held", bytes=None), "has no bytes"),
        (line(role="receiver", event="refused"), "has no condition"),
        (line(role="queue", event="published", queue="q"), "has no item"),
        (line(role="worker", event="started", queue="q", item="i"), "has no attempt"),
        (line(role="journal", event="counted", sent=1), "has no since, received"),
        (line(since="2026-11-21"), "since is no time"),
    ],
)
def test_a_line_that_is_none_is_refused(text: Any, why: str) -> None:
    """The error has one line, which can be logged."""
    if isinstance(text, dict):
        text = json.dumps(text)
    with pytest.raises(BadLine, match=why) as caught:
        parse_line(text)
    assert not isinstance(caught.value, NewerSchema)
    assert len(str(caught.value)) < 300


def test_a_line_of_a_newer_version_is_told_from_a_bad_one() -> None:
    """An operator can update the reader, and loses nothing."""
    with pytest.raises(NewerSchema, match="version 3"):
        parse_line(json.dumps(line(v=3, role="something new")))


def test_a_field_that_is_not_known_is_left_out() -> None:
    """A new field does not need a new version."""
    assert parse_line(json.dumps(line(colour="red"))) == line()


def test_a_torn_line_is_refused_wherever_it_is_torn() -> None:
    """No prefix of a line is a valid line."""
    text = render_line(line())
    for end in range(len(text)):
        with pytest.raises(BadLine):
            parse_line(text[:end])


@pytest.mark.parametrize("event", [event for role in Role for event in EVENTS[role]])
def test_an_event_has_all_that_it_must_have(event: Event) -> None:
    """A line without `attempt`, for example, would count for nothing without notice."""
    role = next(role for role in Role if event in EVENTS[role])
    values = {"int": 1, "text": "x", "time": "2026-11-21T20:19:04.000000Z"}
    kinds = {field.name: field.kind for field in FIELDS}
    bare = {field.name: None for field in FIELDS if not field.always}
    there = {name: values[kinds[name]] for name in REQUIRED[event]}
    whole = {**bare, **there, "role": role.value, "event": event.value}
    for version in (1, 2):
        assert parse_line(json.dumps(line(v=version, **whole)))["event"] == event.value
        for name in REQUIRED[event]:
            with pytest.raises(BadLine, match=rf"has no {name}"):
                parse_line(json.dumps(line(v=version, **{**whole, name: None})))
