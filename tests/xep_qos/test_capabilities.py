"""Capabilities of peers, kept over a restart: fewer requests before the first message."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from slixmpp import ClientXMPP
from slixmpp.plugins.xep_0030 import DiscoInfo
from slixmpp.util.cache import MemoryCache

from qos.core.message.model import NAMESPACES
from qos.testing import friends, logged_in
from waiting import limit
from xep_qos import XEP_QOS, capabilities
from xep_qos.capabilities import StoredCapabilities

LAMP = "lamp@localhost/1"


def features(*names: str) -> DiscoInfo:
    info = DiscoInfo()
    for name in names:
        info.add_feature(name)
    return info


class Kept:
    """A client whose capabilities are kept in a variable."""

    def __init__(self) -> None:
        self.values = [""]

    def start(self, cache: object = None) -> StoredCapabilities:
        self.client = ClientXMPP("controller@localhost", "secret")
        self.client.register_plugin("xep_0115", {"cache": cache})
        return StoredCapabilities(self.client, self.values[-1], self.values.append)

    @property
    def cache(self) -> object:
        plugin: Any = self.client.plugin["xep_0115"]
        return plugin.cache


async def test_a_list_is_there_again_after_a_restart() -> None:
    """Its name is its hash, so an old list is as right as a new one."""
    kept = Kept()
    kept.start().store("v1", features(NAMESPACES[0]))
    found = kept.start().retrieve("v1")
    assert found is not None
    assert NAMESPACES[0] in found["features"]
    assert kept.start().retrieve("v2") is None


async def test_a_list_that_is_known_is_not_written_again() -> None:
    """The same presence comes often."""
    kept = Kept()
    started = kept.start()
    assert started.store("v1", features("a"))
    assert not started.store("v1", features("a"))
    assert len(kept.values) == 2
    assert started.remove("v1")
    assert not started.remove("v1")


async def test_the_oldest_lists_are_forgotten_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each peer may send presence with a list of its own."""
    list_bytes = len(ET.tostring(features("a").xml))
    monkeypatch.setattr(capabilities, "_BYTES_MAX", 2 * list_bytes)
    kept = Kept()
    started = kept.start()
    for version in ("v1", "v2", "v3"):
        started.store(version, features("a"))
    again = kept.start()
    known = [v for v in ("v1", "v2", "v3") if again.retrieve(v) is not None]
    assert known == ["v2", "v3"]


async def test_a_list_that_is_too_long_is_not_kept() -> None:
    """A peer may list as many features as a stanza holds."""
    kept = Kept()
    long = [f"urn:example:{number}" for number in range(2_000)]
    assert not kept.start().store("v1", features(*long))
    assert kept.values == [""]


async def test_the_plugin_has_its_own_cache_again_after_the_end() -> None:
    """The plugin may be unloaded, and the client goes on."""
    kept = Kept()
    started = kept.start()
    assert kept.cache is started
    started.close()
    assert isinstance(kept.cache, MemoryCache)


async def test_a_cache_that_the_application_has_set_stays() -> None:
    """It may share one among its clients."""

    class Own(MemoryCache):
        pass

    kept, own = Kept(), Own()  # type: ignore[no-untyped-call]
    started = kept.start(own)
    assert kept.cache is own
    started.close()
    assert kept.cache is own


async def test_a_peer_is_not_asked_again_after_a_restart(tmp_path: Path) -> None:
    """A request would cost a round trip before the first message."""
    store = {"xep_qos": {"store": f"sqlite:{tmp_path / 'controller.db'}"}}
    asked: list[str] = []

    def watch(client: ClientXMPP) -> None:
        def note(stanza: Any) -> Any:
            query = f"{{{DiscoInfo.namespace}}}query"
            if stanza.name == "iq" and stanza.xml.find(query) is not None:
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
