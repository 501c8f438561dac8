"""Presence of strangers at a client that only works at queues: nothing of it stays."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP
from slixmpp.stanza import Presence

from xep_0254 import XEP_0254

OWN = "bee@localhost/1"


@pytest.fixture
async def bee() -> ClientXMPP:
    client = ClientXMPP(OWN, "")
    client.auto_authorize = None
    XEP_0254.of(client)
    client.event("session_bind", client.boundjid)
    client.event("session_start", {})
    return client


def comes(client: ClientXMPP, source: str, kind: str = "") -> None:
    named = f" type='{kind}'" if kind else ""
    xml = f"<presence xmlns='jabber:client' from='{source}' to='{OWN}'{named}/>"
    client.recv_stanza(Presence(client, xml=ET.XML(xml)))


def entries(client: ClientXMPP) -> set[str]:
    return set(client.roster["bee@localhost"].keys())


async def test_slixmpp_keeps_no_entry_of_a_stranger(bee: ClientXMPP) -> None:
    """300 of them left 300 entries, for as long as the worker runs."""
    before = entries(bee)
    for number in range(300):
        comes(bee, f"eve-{number}@far/1")
        comes(bee, f"eve-{number}@far/1", "unavailable")
    assert entries(bee) == before


async def test_contacts_the_own_account_and_those_that_are_wanted_pass(
    bee: ClientXMPP,
) -> None:
    bee.roster["bee@localhost"].add("boss@localhost", ato=True, save=False)
    comes(bee, "boss@localhost/1")
    comes(bee, "bee@localhost/2")
    assert "1" in bee.roster["bee@localhost"]["boss@localhost"].resources
    assert "2" in bee.roster["bee@localhost"]["bee@localhost"].resources
    heard: list[str] = []
    bee.add_event_handler(
        "presence_available", lambda it: heard.append(str(it["from"]))
    )
    comes(bee, "eve@far/1")
    assert heard == ["eve@far/1"]
