"""Capabilities of peers, kept over a restart: fewer requests before the first message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from slixmpp import ClientXMPP

from qos.core.message.model import NAMESPACES
from qos.testing import friends, logged_in
from waiting import limit
from xep_qos import XEP_QOS, capabilities
from xep_qos.capabilities import StoredCapabilities

LAMP = "lamp@localhost/1"
ACCOUNT = "lamp@localhost"
DISCO = "{http://jabber.org/protocol/disco#info}query"
QOS = frozenset({NAMESPACES[0]})
OF_INTEREST = frozenset(NAMESPACES)


class Kept:
    """Capabilities that are kept in a variable."""

    def __init__(self, *values: str) -> None:
        self.values = ["", *values]

    def start(self) -> StoredCapabilities:
        return StoredCapabilities(self.values[-1], self.values.append, OF_INTEREST)


def test_a_list_is_there_again_after_a_restart() -> None:
    """Its name is its hash, so an old list is as right as a new one."""
    kept = Kept()
    kept.start().learn(ACCOUNT, "sha-1", "v1", QOS | {"urn:example:other"})
    again = kept.start()
    assert again.features(ACCOUNT, "sha-1", "v1") == QOS
    assert again.features(ACCOUNT, "sha-1", "v2") is None
    assert again.features(ACCOUNT, "sha-256", "v1") is None


def test_a_list_belongs_to_the_account_that_has_sent_it() -> None:
    """Of two lists with the same hash, one was made for that."""
    kept = Kept()
    started = kept.start()
    started.learn("eve@localhost", "sha-1", "v1", frozenset({NAMESPACES[1]}))
    started.learn(ACCOUNT, "sha-1", "v1", QOS)
    assert started.features(ACCOUNT, "sha-1", "v1") is None
    started.learn("bell@localhost", "sha-1", "v1", frozenset({NAMESPACES[1]}))
    features = kept.start().features("bell@localhost", "sha-1", "v1")
    assert features == frozenset({NAMESPACES[1]})


def test_a_list_that_is_known_is_not_written_again() -> None:
    """The same presence comes often. A list without QoS is of no use."""
    kept = Kept()
    started = kept.start()
    for _ in range(3):
        started.learn(ACCOUNT, "sha-1", "v1", QOS)
    started.learn(ACCOUNT, "sha-1", "v2", frozenset({"urn:example:other"}))
    assert len(kept.values) == 2


def test_the_oldest_lists_are_forgotten_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each peer may have many versions."""
    monkeypatch.setattr(capabilities, "_BYTES_MAX", 400)
    kept = Kept()
    started = kept.start()
    for number in range(50):
        started.learn(f"lamp-{number}@localhost", "sha-1", f"v{number % 7}", QOS)
    assert all(len(value.encode()) <= 400 for value in kept.values)
    again = kept.start()
    assert again.features("lamp-49@localhost", "sha-1", "v0") == QOS
    assert again.features("lamp-0@localhost", "sha-1", "v0") is None


def test_lists_in_the_form_of_earlier_versions_are_not_believed() -> None:
    """Anybody could have sent them."""
    kept = Kept('{"v1": "<query xmlns=\\"http://jabber.org/protocol/disco#info\\"/>"}')
    assert kept.start().features(ACCOUNT, "sha-1", "v1") is None


async def test_a_peer_is_not_asked_again_after_a_restart(tmp_path: Path) -> None:
    """A request would cost a round trip before the first message."""
    store = {"xep_qos": {"store": f"sqlite:{tmp_path / 'controller.db'}"}}
    asked: list[str] = []

    def watch(client: ClientXMPP) -> None:
        def note(stanza: Any) -> Any:
            if stanza.name == "iq" and stanza.xml.find(DISCO) is not None:
                asked.append(str(stanza["to"]))
            return stanza

        client.add_filter("out", note)

    def switch(client: ClientXMPP) -> None:
        client.add_event_handler("message", lambda _message: None)
        # Otherwise it would have the same list as the controller.
        client.plugin["xep_0030"].add_feature("urn:example:lamp")

    async with (
        friends("controller", "lamp") as server,
        logged_in(server, "lamp/1", prepare=switch),
    ):
        for start in (1, 2):
            asked.clear()
            async with (
                logged_in(server, "controller/1", store, prepare=watch) as client,
                limit(),
            ):
                await XEP_QOS.of(client).send(LAMP, "on")
            assert (LAMP in asked) == (start == 1), asked
