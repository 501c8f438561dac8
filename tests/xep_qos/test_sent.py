"""Views of the traffic for others: counts, stanzas, reports of abuse."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest
from slixmpp import ClientXMPP

from qos.core.message.effects import Report
from qos.stream.tap import Tap
from xep_0337 import XEP_0337
from xep_qos.reporting import Reporter


@pytest.fixture
async def client() -> ClientXMPP:
    """A client without a connection."""
    return ClientXMPP("bob@localhost/b", "secret")


async def test_an_event_of_abuse_has_the_moment_as_utc(
    client: ClientXMPP, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of the log may be in other time zones."""
    now = 1_000_000_000.0
    reporter = Reporter(client, to="log@localhost", interval_s=60.0, now=lambda: now)
    sent: list[Any] = []
    monkeypatch.setattr(client, "send", sent.append)
    reporter.report("eve@localhost", Report("not-allowed", "no"), online=True)
    (event,) = XEP_0337.parse(sent[0])
    assert event.timestamp == datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)
    client.plugin.disable("xep_0337")  # type: ignore[attr-defined]  # slixmpp's lack


async def test_whoever_hears_of_acknowledged_stanzas_can_read_the_id(
    client: ClientXMPP,
) -> None:
    """slixmpp's XEP-0198 raises `stanza_acked` with a stanza, but we send text."""
    client.register_plugin("xep_0198")
    management: Any = client.plugin["xep_0198"]
    management.enabled_out = True
    acknowledged: list[Any] = []
    client.add_event_handler("stanza_acked", acknowledged.append)
    client.transport = mock.Mock(is_closing=lambda: False)
    wire = Tap.of(client).wire
    for text in (
        "<iq type='set' id='i1' to='a@b/c'><x xmlns='urn:x'/></iq>",
        "<message xmlns='jabber:client' id='m1' to='a@b/c'><body>on</body></message>",
    ):
        assert wire.send(text)
        await asyncio.sleep(0)
    management._handle_ack({"h": 2})
    assert [each["id"] for each in acknowledged] == ["i1", "m1"]
    assert [each["to"].full for each in acknowledged] == ["a@b/c", "a@b/c"]
    assert acknowledged[1]["body"] == "on"
    assert acknowledged[0][:3] == "<iq"
    wire.close()
    client.transport = None


@pytest.mark.parametrize("fails", [False, True], ids=["taken out", "failed"])
async def test_a_message_handed_over_is_not_counted_though_a_filter_stops_it(
    client: ClientXMPP, fails: bool
) -> None:
    """XEP-0198 §4: the server does not know of it, so `h` would be too high."""
    client.register_plugin("xep_0198")
    management: Any = client.plugin["xep_0198"]
    management.enabled_in, management.handled = True, 7

    def stop(_stanza: object) -> None:
        if fails:
            raise ArithmeticError

    client.add_filter("in", stop)
    tap = Tap.of(client)
    message = client.make_message("bob@localhost/b", "x")
    with pytest.raises(ArithmeticError) if fails else contextlib.nullcontext():
        tap.filtered(message)
    assert management.handled == 7
