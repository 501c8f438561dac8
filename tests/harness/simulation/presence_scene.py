"""A scene of presence: strangers send theirs without end while contacts get messages.

A real client of slixmpp with the plugin `xep_qos`, and in some seeds with a queue service,
on a simulated stream. Its contacts show their capabilities (XEP-0115), are asked for them
and answer; one of them comes and goes. Strangers send each type of presence: under new
accounts, under many resources of one, from rooms that nobody has entered, and with hashes
that are new or those of a contact. Some of them have sent a list to us, since we have
sent them a message.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from xml.etree import ElementTree as ET

from slixmpp import ClientXMPP, Iq, Presence

from qos.core.capabilities import DiscoInfo, verification
from qos.core.message.model import NAMESPACES
from qos.core.queue.requests import Create, Subscribe
from qos.core.strings import bare
from qos.stream import internals, presences
from simulation import door_invariants as invariants
from simulation.door_scene import Scene
from simulation.queue_store import QueueServiceDisk, SimulatedQueueStore
from xep_0254 import QueueService
from xep_qos import XEP_QOS, discovery, guard

__all__ = ["presence"]

_OWN = "bob@localhost/b"

#: A contact that stays, one that is written to later, one that comes and goes, and a
#: stranger to whom we send. The first is a worker of the queue service.
_LAMP, _HUB, _BELL = "lamp@localhost/1", "hub@localhost/1", "bell@localhost/1"
_CONTACTS = (_LAMP, _HUB, _BELL)
_SHOP = "shop@far/1"

#: Seconds of the scene, of a way over the network, and between presences of strangers.
_LASTS_S = 1.5
_LATENCY_S, _EVERY_S = 0.02, 0.01

#: The hub gets its first message when a stranger has sent the list of the same hash.
_HUB_AFTER_S = 0.6

#: The bounds of tables, which are smaller here.
_KNOWN_MAX, _STRANGERS_MAX, _RESOURCES_MAX, _ENTRIES_MAX = 8, 6, 4, 3

_CAPS = "http://jabber.org/protocol/caps"
_DISCO = "http://jabber.org/protocol/disco#info"
_MUC_USER = "<x xmlns='http://jabber.org/protocol/muc#user'/>"

_KINDS = (
    *("", "", "", "", "unavailable", "error"),
    *("subscribe", "subscribed", "unsubscribe", "unsubscribed"),
)


def presence(scene: Scene) -> None:
    """Strangers send presence while contacts get messages."""
    with _small_tables():
        stream = _Stream(scene)
        try:
            stream.run()
        finally:
            stream.close()


@contextmanager
def _small_tables() -> Iterator[None]:
    bounds: list[tuple[Any, str, int]] = [
        (discovery, "_PRESENT_MAX", _KNOWN_MAX),
        (discovery, "_STRANGERS_MAX", _STRANGERS_MAX),
        (discovery, "_RESOURCES_MAX", _RESOURCES_MAX),
        (guard, "_ROOMS_MAX", _STRANGERS_MAX),
        (presences, "_ENTRIES_MAX", _ENTRIES_MAX),
    ]
    before = [getattr(module, name) for module, name, _ in bounds]
    for module, name, small in bounds:
        setattr(module, name, small)
    try:
        yield
    finally:
        for (module, name, _), value in zip(bounds, before, strict=True):
            setattr(module, name, value)


class _Transport:
    """The part of a connection that the plugin uses."""

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, _name: str) -> None:
        return None


class _Stream:
    """A client that believes that it has a session, and everybody at its other end."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._numbers = itertools.count()
        #: The version of the capabilities of each peer, by its full JID.
        self._versions: dict[str, str] = {}
        self._there: dict[str, None] = {}
        # The accounts that have sent their list.
        self._have_answered: set[str] = set()
        self._addressed: set[str] = {bare(each) for each in (*_CONTACTS, _OWN)}
        self._client = client = ClientXMPP(_OWN, "")
        # Nobody is accepted, and nothing is answered, by slixmpp itself.
        client.auto_authorize = None
        inner: Any = client
        inner.send_raw = self._written
        inner.transport = _Transport()
        client.register_plugin("xep_qos", {"store": "memory:"})
        self._qos = XEP_QOS.of(client)
        endpoint: Any = self._qos._endpoint
        self._discovery, self._guard = endpoint._discovery, endpoint.guard
        self._service = self._queue_service() if scene.random.random() < 0.5 else None
        self._sees_all = scene.random.random() < 0.3
        client.event("session_bind", client.boundjid)
        client.event("session_start", {})

    def _queue_service(self) -> QueueService:
        scene = self._scene
        disk = QueueServiceDisk("presence", lambda _change: None, lambda: None)
        store = SimulatedQueueStore(disk, scene.clock, lambda: None)
        service = QueueService(self._client, store)
        for request in (Create("jobs"), Subscribe("jobs", _LAMP)):
            service.engine.request(request, _LAMP, lambda *_: None)
        return service

    def close(self) -> None:
        """Leave the stream without a word."""
        inner: Any = self._client
        inner.transport = None

    # -- the network -------------------------------------------------------

    def _written(self, data: object) -> None:
        """Carry each stanza to its peer."""
        for xml in ET.fromstring(f"<stream>{data}</stream>"):  # noqa: S314
            to = xml.get("to", "")
            # A stanza without an address is for our own account.
            if xml.tag != "iq" or bare(to) not in {*self._addressed, ""}:
                name = xml.tag if not len(xml) else xml[0].tag
                self._scene.check(invariants.no_stranger_is_asked, to, name)
            elif xml.get("type") in {"get", "set"}:
                self._later(_LATENCY_S, partial(self._arrived, xml))

    def _later(self, seconds: float, call: Any) -> None:
        self._scene.loop.call_later(seconds, call)

    def _arrived(self, xml: ET.Element) -> None:
        """A peer, or our server, answers a request."""
        to = xml.get("to", "")
        name = xml[0].tag.rpartition("}")[2]
        content = ""
        if xml[0].tag == "{jabber:iq:roster}query":
            content = f"<query xmlns='jabber:iq:roster'>{_roster()}</query>"
        elif xml[0].tag == f"{{{_DISCO}}}query":
            content = f"<query xmlns='{_DISCO}'>{_list_of(to)}</query>"
            self._later(_LATENCY_S, partial(self._have_answered.add, bare(to)))
        elif name == "assured":
            has_answered = bare(to) in self._have_answered
            self._scene.check(invariants.its_own_list_counts, to, has_answered)
            msg_id = xml[0].get("msgId", "")
            content = f"<received xmlns='{NAMESPACES[0]}' msgId='{msg_id}'/>"
        if to and to not in self._there:
            return
        answer = ET.fromstring(  # noqa: S314
            f"<iq xmlns='jabber:client' type='result' id='{xml.get('id')}' "
            f"from='{to}' to='{_OWN}'>{content}</iq>"
        )
        if not to:
            del answer.attrib["from"]
        stanza = Iq(self._client, xml=answer)  # type: ignore[no-untyped-call]
        self._later(_LATENCY_S, partial(self._client.recv_stanza, stanza))

    def _sends(self, source: str, kind: str = "", content: str = "") -> None:
        """A presence comes."""
        named = f" type='{kind}'" if kind else ""
        xml = ET.fromstring(  # noqa: S314
            f"<presence xmlns='jabber:client' from='{source}' to='{_OWN}'{named}>"
            f"{content}</presence>"
        )
        stanza = Presence(self._client, xml=xml)
        self._client.recv_stanza(stanza)

    # -- peers -------------------------------------------------------------

    def _comes(self, jid: str) -> None:
        """A peer is available, with the version of its list."""
        self._there[jid] = None
        self._versions[jid] = _version_of(jid)
        self._sends(jid, "", _caps(self._versions[jid]))

    def _goes(self, jid: str) -> None:
        self._there.pop(jid, None)
        self._versions.pop(jid, None)
        self._sends(jid, "unavailable")

    def _floods(self) -> None:
        """A presence of a stranger."""
        chance, number = self._scene.random, next(self._numbers)
        kind = chance.choice(_KINDS)
        version = chance.choice((f"new {number}", _version_of(_LAMP)))
        content = chance.choice(("", _caps(version), _caps(version)))
        source = chance.choice(
            (
                *(f"eve-{number}@far/1", f"eve-{number}@far/1"),
                *(
                    f"eve@far/{number}",
                    f"eve@far/{number % 9}",
                    f"eve-{number % 9}@far",
                ),
                # As a contact, at another server, and under its resource.
                *(f"lamp@far/{number % 3}", f"lamp@localhost.far/{number}"),
            )
        )
        if chance.random() < 0.2:
            source, content = f"hall{number // 9}@rooms.far/{number}", _MUC_USER
        self._sends(source, kind, content)
        self._check(source)

    # -- what must hold ----------------------------------------------------

    def _check(self, stranger: str) -> None:
        scene, peers, guard = self._scene, self._discovery, self._guard
        strange = peers._present.strangers, peers._versions.strangers
        for_contacts: list[Any] = [
            *(peers._present.known, peers._versions.known, guard._rooms.known),
            *(peers._features._known, peers._features._to_ask),
        ]
        core = self._service and self._service.engine._core
        if core:
            for_contacts.append(core.presence.present)
        scene.check(
            invariants.nothing_of_a_stranger_is_kept,
            stranger,
            [jid for table in for_contacts for jid in _far(table)],
        )
        resources = [len(of) for of in peers._present.strangers.values()]
        for name, size, bound in (
            ("accounts", len(strange[0]), _STRANGERS_MAX),
            ("versions", len(strange[1]), _STRANGERS_MAX),
            ("rooms", len(guard._rooms.strangers), _STRANGERS_MAX),
            ("resources of an account", max(resources, default=0), _RESOURCES_MAX),
            ("rosters", self._kept(), _ENTRIES_MAX if self._sees_all else 0),
        ):
            scene.check(invariants.tables_of_strangers_are_bounded, name, size, bound)
        for jid in (*_CONTACTS, _OWN):
            scene.check(
                invariants.facts_of_a_contact_stay,
                jid,
                self._facts(jid),
                (jid in self._there, jid not in self._there, self._versions.get(jid)),
            )

    def _facts(self, jid: str) -> tuple[bool, bool, str | None]:
        """What is known: that it is there, that it is not, and the version of its list."""
        peers = self._discovery
        there = jid in peers._available(bare(jid), "")
        version = peers._versions.get(jid)
        return there, peers._is_absent(jid, ""), version and version.text

    def _kept(self) -> int:
        """The entries of slixmpp's rosters that are nobody's whom we know."""
        rosters = self._client.roster
        return sum(
            account not in self._addressed
            for own in list(rosters)
            for account in list(rosters[own])
        ) + (len(internals.handlers(self._client)) - self._handlers)

    # -- the scene ---------------------------------------------------------

    def run(self) -> None:
        """Run to the end, or to the first violation."""
        scene, loop = self._scene, self._scene.loop
        scene.run(scene.clock.now() + 3 * _LATENCY_S)
        if self._sees_all:
            self._client.add_event_handler("presence_available", lambda _presence: None)
        self._handlers = len(internals.handlers(self._client))
        for jid in (_OWN, *_CONTACTS):
            self._comes(jid)
        scene.loop.settle()
        until = scene.clock.now() + _LASTS_S
        for number in range(int(_LASTS_S / _EVERY_S)):
            loop.call_later(number * _EVERY_S, self._floods)
        for number in range(int(_LASTS_S / (10 * _EVERY_S))):
            at_s = number * 10 * _EVERY_S
            to = _HUB if number % 2 and at_s > _HUB_AFTER_S else _LAMP
            loop.call_later(at_s, partial(self._submit, to))
        loop.call_later(0.2 * scene.random.random(), self._write_to_the_shop)
        for number in range(3):
            at_s = 0.1 + 0.5 * number + 0.2 * scene.random.random()
            loop.call_later(at_s, partial(self._goes, _BELL))
            loop.call_later(at_s + 0.15, partial(self._comes, _BELL))
        scene.run(until + 1.0)

    def _submit(self, to: str) -> None:
        self._scene.task(self._send(to))

    async def _send(self, to: str) -> None:
        answered = self._scene.asks(f"a message to {to}", 6 * _LATENCY_S + _EVERY_S)
        await (await self._qos.submit(to, "on")).outcome()
        answered()

    def _write_to_the_shop(self) -> None:
        """We send to a stranger, who is asked then, and has the hash of a contact."""
        self._addressed.add(bare(_SHOP))
        self._scene.task(self._send(_SHOP))
        self._comes(_SHOP)


def _far(table: Any) -> list[str]:
    """The strangers in a table, whose keys are JIDs, or pairs with ours in front."""
    jids = [key[1] if isinstance(key, tuple) else key for key in table]
    return [jid for jid in jids if "far" in jid and bare(jid) != bare(_SHOP)]


def _roster() -> str:
    return "".join(
        f"<item jid='{bare(jid)}' subscription='both'/>" for jid in _CONTACTS
    )


def _features_of(jid: str) -> tuple[str, ...]:
    """Those of a peer; the shop has the same as the hub."""
    kind = "urn:shop" if jid in {_HUB, _SHOP} else f"urn:{bare(jid)}"
    return *NAMESPACES, kind


def _list_of(jid: str) -> str:
    return "".join(f"<feature var='{each}'/>" for each in _features_of(jid))


def _version_of(jid: str) -> str:
    ver = verification(DiscoInfo((), _features_of(jid)), "sha-1")
    assert ver is not None
    return ver


def _caps(version: str) -> str:
    return f"<c xmlns='{_CAPS}' hash='sha-1' node='urn:x' ver='{version}'/>"
