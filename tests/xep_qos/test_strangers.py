"""What a stranger sends changes nothing of a contact, is not kept, and draws no question."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP, Presence

from qos.core.capabilities import DiscoInfo, verification
from qos.core.message.model import NAMESPACES
from qos.stream import internals
from qos.testing.clients import close
from xep_0254 import QueueService
from xep_qos import XEP_QOS

OWN = "bob@localhost/b"
LAMP = "lamp@localhost/1"
CAPS = "http://jabber.org/protocol/caps"
MUC_USER = "http://jabber.org/protocol/muc#user"
DISCO = "http://jabber.org/protocol/disco#info"
MANY = 300


class Transport:
    """The part of a connection that the plugin uses."""

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, _name: str) -> None:
        return None


async def a_turn() -> None:
    """Data written in one turn of the loop is sent at its end."""
    for _ in range(4):
        await asyncio.sleep(0)


class Stream:
    """A client that believes that it has a session, and everything that it writes."""

    def __init__(self, client: ClientXMPP) -> None:
        self.client = client
        self.written: list[str] = []

    async def comes(self, source: str, kind: str = "", content: str = "") -> None:
        """A presence comes."""
        named = f" type='{kind}'" if kind else ""
        text = (
            f"<presence xmlns='jabber:client' from='{source}' to='{OWN}'{named}>"
            f"{content}</presence>"
        )
        xml = ET.fromstring(text)  # noqa: S314
        self.client.recv_stanza(Presence(self.client, xml=xml))
        await a_turn()

    def kept(self) -> int:
        """The entries of slixmpp for other accounts: rosters, entries, handlers."""
        rosters = self.client.roster
        return (
            len(list(rosters.keys()))
            + sum(len(rosters[own]) for own in list(rosters))
            + len(internals.handlers(self.client))
        )

    def questions(self) -> int:
        return "".join(self.written).count(DISCO)


@contextlib.asynccontextmanager
async def streaming(
    queues: Path | None = None, **options: Any
) -> AsyncIterator[Stream]:
    client = ClientXMPP(OWN, "")
    client.auto_authorize = None
    stream = Stream(client)
    inner: Any = client
    inner.send_raw = lambda data: stream.written.append(str(data))
    inner.transport = Transport()
    client.register_plugin("xep_qos", {"store": "memory:", **options})
    service = QueueService(client, f"sqlite:{queues}") if queues else None
    client.event("session_bind", client.boundjid)
    client.event("session_start", {})
    client.roster["bob@localhost"]["lamp@localhost"]["to"] = True
    client.roster["bob@localhost"]["lamp@localhost"]["from"] = True
    try:
        yield stream
    finally:
        inner.transport = None
        if service is not None:
            await service.aclose()
        await close(client)


def version(number: int) -> str:
    return f"<c xmlns='{CAPS}' hash='sha-1' node='urn:eve' ver='version {number}'/>"


@pytest.mark.parametrize("queues", [False, True], ids=["device", "queue service"])
@pytest.mark.parametrize("kind", ["", "unavailable", "subscribe", "subscribed"])
async def test_a_flood_of_presences_leaves_nothing_and_asks_nobody(
    tmp_path: Path, queues: bool, kind: str
) -> None:
    """16,000 presences cost a minute; each drew a question, and stayed for ever."""
    async with streaming(tmp_path / "queues" if queues else None) as stream:
        await stream.comes(LAMP)
        before, asked = stream.kept(), stream.questions()
        for number in range(MANY):
            await stream.comes(f"eve-{number}@far/1", kind, version(number))
        assert stream.kept() == before
        assert stream.questions() == asked
        assert "far" not in "".join(stream.written)


async def test_what_is_known_of_a_contact_stays() -> None:
    """The tables were the same for all; the oldest entry went first."""
    async with streaming() as stream:
        features = tuple(NAMESPACES)
        ver = verification(DiscoInfo((), features), "sha-1")
        await stream.comes(LAMP, "", f"<c xmlns='{CAPS}' hash='sha-1' ver='{ver}'/>")
        endpoint: Any = XEP_QOS.of(stream.client)._endpoint
        discovery = endpoint._discovery
        for number in range(2_000):
            discovery.arrived(
                f"eve-{number}@far/1", "bob@localhost", 0, None, stranger=True
            )
        assert discovery._available("lamp@localhost", "") == {LAMP: 0}
        assert discovery._versions.get(LAMP).text == ver
        assert LAMP.partition("/")[0] in stream.client.roster["bob@localhost"]


async def test_a_contact_is_not_asked_before_there_is_a_message_for_it() -> None:
    """We ask whom we are about to send to."""
    async with streaming() as stream:
        asked = stream.questions()
        for number in range(20):
            await stream.comes(LAMP, "", version(number))
        assert stream.questions() == asked
        await XEP_QOS.of(stream.client).submit(LAMP, "on")
        await a_turn()
        assert stream.questions() == asked + 1


async def test_an_application_that_wants_presence_sees_that_of_strangers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be a service for everybody. slixmpp's entries for them are bounded."""
    monkeypatch.setattr("qos.stream.presences._ENTRIES_MAX", 5)
    async with streaming() as stream:
        sources: list[str] = []

        def note(presence: Presence) -> None:
            sources.append(str(presence["from"]))

        before, asked = stream.kept(), stream.questions()
        stream.client.add_event_handler("presence_available", note)
        for number in range(MANY):
            await stream.comes(f"eve-{number}@far/1", "", version(number))
        assert sources == [f"eve-{number}@far/1" for number in range(MANY)]
        assert stream.kept() <= before + 2 * 5
        assert stream.questions() == asked


async def test_a_request_that_slixmpp_is_to_answer_is_answered() -> None:
    """By default it accepts everybody; that is the application's decision."""
    async with streaming() as stream:
        before = stream.kept()
        await stream.comes("eve@far/1", "subscribe")
        assert stream.kept() == before
        stream.client.auto_authorize = False
        await stream.comes("eve@far/1", "subscribe")
        assert stream.kept() > before, "slixmpp has seen it"


async def test_occupants_of_a_room_that_we_have_entered_are_no_strangers() -> None:
    """The room has our presence."""
    async with streaming() as stream:
        entering = stream.client.make_presence(pto="hall@rooms.localhost/bob")
        for passes in internals.filters(stream.client, "out"):
            passes(entering)
        before = stream.kept()
        occupant = f"<x xmlns='{MUC_USER}'/>"
        await stream.comes("hall@rooms.localhost/eve", "", occupant)
        assert stream.kept() > before, "slixmpp has seen it"


async def test_whom_we_send_to_is_no_stranger() -> None:
    """The answer to the question where it is."""
    async with streaming(trust="nobody") as stream:
        await XEP_QOS.of(stream.client).submit("bell@far", "on")
        await a_turn()
        asked = stream.questions()
        await stream.comes("bell@far/1")
        assert stream.questions() == asked + 1
        assert '"bell@far/1"' in stream.written[-1].replace("'", '"')


async def test_our_own_account_is_trusted_before_the_roster_is_known() -> None:
    """The server had none, and not even the own devices were served."""
    async with streaming() as stream:
        endpoint: Any = XEP_QOS.of(stream.client)._endpoint
        assert not endpoint.guard.roster_known.is_set()
        decision = endpoint.guard.decision("assured", "bob@localhost/other", OWN)
        assert decision is not None
        assert decision.trusted
        assert endpoint.guard.decision("assured", "eve@far/1", OWN) is None
