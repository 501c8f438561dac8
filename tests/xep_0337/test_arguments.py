"""A wrong value for any argument is refused before anything is sent.

The error names it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime

import pytest
from slixmpp import ClientXMPP

from wrong_values import NO_JIDS, accepted, parameters_of
from xep_0337 import XEP_0337, EventLogHandler, EventTag, LogEvent

HOOKS = {"plugin_init", "plugin_end", "session_bind", "post_init"}
EVENT = LogEvent("on", datetime(2026, 1, 1, tzinfo=UTC))

Wrong = Mapping[str, Sequence[object]]


@pytest.fixture
async def client() -> AsyncIterator[ClientXMPP]:
    client = ClientXMPP("bob@localhost/1", "secret")
    client.register_plugin("xep_0337")
    yield client
    client.plugin.disable("xep_0337")  # type: ignore[attr-defined]  # slixmpp's lack


async def test_every_argument_of_the_plugin_is_checked_and_nothing_is_sent(
    client: ClientXMPP, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`to=None` was the address `None`."""
    events = XEP_0337.of(client)
    sent: list[object] = []
    monkeypatch.setattr(client, "send", sent.append)
    to: Wrong = {"to": NO_JIDS, "sender": NO_JIDS}
    given = {"to": "log@localhost", "event": EVENT}
    table: dict[str, tuple[Mapping[str, object], Wrong]] = {
        "of": ({"xmpp": client}, {}),
        "parse": ({"message": client.make_message("a@b")}, {}),
        "make_message": (given, to),
        "send_event": (given, to),
    }
    methods = {
        name: getattr(events, name)
        for name, value in vars(XEP_0337).items()
        if not name.startswith("_") and name not in HOOKS
        if inspect.isfunction(value) or isinstance(value, classmethod | staticmethod)
    }
    assert {name for name, each in methods.items() if parameters_of(each)} == set(table)
    for name, (valid, wrong) in table.items():
        assert await accepted(methods[name], valid, wrong) == [], name
    assert sent == []


async def test_every_argument_of_the_handler_is_checked(client: ClientXMPP) -> None:
    """A handler that fails at each record would fill stderr.

    Its level is that of `logging`.
    """
    valid = {"xmpp": client, "to": "log@localhost"}
    wrong: Wrong = {"to": NO_JIDS, "events_per_s_max": (-1,), "burst_max": (0, -1)}
    without = ("level",)
    assert await accepted(EventLogHandler, valid, wrong, without=without) == []


async def test_every_part_of_an_event_is_checked() -> None:
    """A value that cannot be written would end the stream, and a number is no text."""
    wrong: Wrong = {
        "message": ("\x00",),
        "timestamp": (datetime(2026, 1, 1),),  # noqa: DTZ001 - what is tested
        "type": ("", "error", "Errors"),
        "level": ("", "minor"),
        "object": ("\x00",),
        "tags": (["a"], ("a",), EventTag("a", "b")),
    }
    valid = {"message": "on", "timestamp": EVENT.timestamp}
    assert await accepted(LogEvent, valid, wrong) == []
    tag: Wrong = {"name": ("\x00",), "value": ("\x00",), "type": ("",)}
    assert await accepted(EventTag, {"name": "a", "value": "b"}, tag) == []
