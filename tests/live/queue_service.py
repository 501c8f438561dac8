"""A queue service on a real server, and raw peers that speak XEP-0254 with it.

    async with served(prosody, tmp_path) as queues:
        async with peers(queues, "alice/a", "bob/b") as (alice, bob):
            await alice.create("orders")

The service is ours, on a slixmpp stream; the peers write every stanza by hand, and
nothing here uses our own reading or writing of them.
"""

import contextlib
import errno
import itertools
import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape, quoteattr

from slixmpp import ClientXMPP, ComponentXMPP

from clients import log_in, make_client, make_component
from qos.core.queue.bounds import QueueBounds
from qos.stores.queue_store import SqliteQueueStore
from qos.stream.closing import close
from qos.testing.prosody import Prosody, mutual
from qos.testing.xmpp_server import XmppServer
from raw_client import RawClient, local
from waiting import LIMIT_S, until
from xep_0254 import QueueService

PUBSUB: Final = "http://jabber.org/protocol/pubsub"
OWNER: Final = f"{PUBSUB}#owner"
EVENT: Final = f"{PUBSUB}#event"
ERRORS: Final = f"{PUBSUB}#errors"
NODE_CONFIG: Final = f"{PUBSUB}#node_config"
SUBSCRIBE_OPTIONS: Final = f"{PUBSUB}#subscribe_options"
QUEUEING: Final = "urn:xmpp:pubsub:queueing:0"
QUEUEING_OLD: Final = "urn:xmpp:queueing:0"
EXTENSIONS: Final = "xmpp-qos:queue:0"
DATA: Final = "jabber:x:data"
RSM: Final = "http://jabber.org/protocol/rsm"
STANZAS: Final = "urn:ietf:params:xml:ns:xmpp-stanzas"
DISCO_INFO: Final = "http://jabber.org/protocol/disco#info"
DISCO_ITEMS: Final = "http://jabber.org/protocol/disco#items"
CLIENT: Final = "jabber:client"

#: The component of every `Prosody` in the tests.
SERVICE: Final = "comp.localhost"

#: The accounts of `own_server`; mallory is a stranger to all of them.
ACCOUNTS: Final = {
    user: f"secret of {user}" for user in ("alice", "bob", "carol", "mallory")
}

#: The lock time-out of `LOCKING`: no lock ends before a test lets this time pass.
LOCK_S: Final = 600.0

#: A node without backoff.
EAGER: Final = {"queue#backoff": "0"}

#: Likewise, with a known lock time-out.
LOCKING: Final = EAGER | {"queue#lock_timeout": f"{LOCK_S:g}"}

#: Texts that no error and no event to a stranger may contain.
PRIVATE: Final = "the-private-payload"

_ids = itertools.count(1)


# -- the service -----------------------------------------------------------


@contextlib.asynccontextmanager
async def own_server(folder: Path) -> AsyncIterator[Prosody]:
    """A server for a whole module of tests, each with a service of its own.

    It returns stanzas that it cannot deliver. As Prosody is shipped, it would silently
    store plain messages for later, even with `<no-store/>`.
    """
    async with Prosody(
        folder,
        accounts=ACCOUNTS,
        rosters=mutual(("alice", "bob"), ("alice", "carol")),
        components={SERVICE: "secret of comp"},
        extra='VirtualHost "localhost"\n  modules_disabled = { "offline" }',
    ) as server:
        yield server


class Served:
    """A queue service that can be restarted on its store.

    Attributes:
        server: its server.
        jid: its address: of a component, or the full JID of an account.
        xmpp: its stream, a new one after each start.
        bounds: of its next start; None: the default.
    """

    def __init__(
        self,
        server: XmppServer,
        folder: Path,
        jid: str,
        creators: str | Collection[str],
    ) -> None:
        self.server = server
        self.jid = jid
        self.store = f"sqlite:{folder / 'queue.sqlite'}"
        self._creators = creators
        self.bounds: QueueBounds | None = None
        self.xmpp: ClientXMPP | ComponentXMPP | None = None
        self._service: QueueService | None = None

    async def start(self) -> None:
        """Open the store, log in, and serve."""
        assert self.xmpp is None
        user, at, rest = self.jid.partition("@")
        if at:
            name = f"{user}/{rest.partition('/')[2]}"
            self.xmpp = make_client(self.server, name)
        else:
            self.xmpp = make_component(self.server, self.jid)
        self._service = QueueService(
            self.xmpp, self.store, creators=self._creators, bounds=self.bounds
        )
        await log_in(self.xmpp, self.server)

    async def stop(self) -> None:
        """End the service, then its stream; harmless if it is not running."""
        if self._service is not None:
            await self._service.aclose()
            self._service = None
        if self.xmpp is not None:
            await close(self.xmpp)
            self.xmpp = None

    async def restart(self) -> None:
        """Stop, and start on the same store: no presence is known then."""
        await self.stop()
        await self.start()

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """A context in which no commit succeeds."""

        def probe(step: str) -> None:
            if step == "commit":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        assert self._service is not None
        store = self._service._engine.store
        assert isinstance(store, SqliteQueueStore)
        before, store.probe = store.probe, probe
        try:
            yield
        finally:
            store.probe = before

    async def cut(self) -> None:
        """Lose the connection; the service goes on without one."""
        assert self.xmpp is not None
        lost = self.xmpp.wait_until("disconnected", timeout=LIMIT_S)
        assert self.xmpp.transport is not None
        self.xmpp.transport.abort()
        await lost

    async def come_back(self) -> None:
        """Connect again after `cut`."""
        assert self.xmpp is not None
        await log_in(self.xmpp, self.server)


@contextlib.asynccontextmanager
async def served(
    server: XmppServer,
    folder: Path,
    *,
    jid: str = SERVICE,
    creators: str | Collection[str] = "domain",
) -> AsyncIterator[Served]:
    """A queue service, with its store in this folder."""
    service = Served(server, folder, jid, creators)
    try:
        await service.start()
        yield service
    finally:
        await service.stop()


# -- what is written -------------------------------------------------------


def form(form_type: str, values: Mapping[str, str], kind: str = "submit") -> str:
    """A form with these values."""
    fields = "".join(
        f"<field var={quoteattr(var)}><value>{escape(value)}</value></field>"
        for var, value in values.items()
    )
    return (
        f"<x xmlns='{DATA}' type='{kind}'><field var='FORM_TYPE' type='hidden'>"
        f"<value>{form_type}</value></field>{fields}</x>"
    )


def pubsub(content: str, xmlns: str = PUBSUB) -> str:
    """The element of a request; prefix q is bound to our extensions."""
    return f"<pubsub xmlns='{xmlns}' xmlns:q='{EXTENSIONS}'>{content}</pubsub>"


def item(item_id: str | None = None, payload: str = PRIVATE, more: str = "") -> str:
    """An item to publish, with a payload of this text ('': no payload)."""
    given = "" if item_id is None else f" id={quoteattr(item_id)}"
    content = (
        payload and f"<example xmlns='urn:xmpp:example'>{escape(payload)}</example>"
    )
    return f"<item{given} {more}>{content}</item>"


def settled(*items: str | tuple[str, str], content: str = "") -> str:
    """Items to retract or to unlock: ids, with or without tokens."""
    written = []
    for each in items:
        item_id, token = (each, "") if isinstance(each, str) else each
        fence = f" q:token={quoteattr(token)}" if token else ""
        written.append(f"<item id={quoteattr(item_id)}{fence}>{content}</item>")
    return "".join(written)


def retract(node: str, *items: str | tuple[str, str]) -> str:
    """A request to retract."""
    return pubsub(f"<retract node={quoteattr(node)}>{settled(*items)}</retract>")


def unlock(
    node: str,
    *items: str | tuple[str, str],
    content: str = "",
    xmlns: str = QUEUEING,
) -> str:
    """A request to unlock, with this outcome in each item."""
    return pubsub(
        f"<unlock xmlns='{xmlns}' node={quoteattr(node)}>"
        f"{settled(*items, content=content)}</unlock>"
    )


def subscribe(node: str, jid: str, options: Mapping[str, str] | None) -> str:
    """A request to subscribe; without a form if there are no options."""
    who = f"node={quoteattr(node)} jid={quoteattr(jid)}"
    chosen = ""
    if options is not None:
        chosen = f"<options {who}>{form(SUBSCRIBE_OPTIONS, options)}</options>"
    return pubsub(f"<subscribe {who}/>{chosen}")


def publish(node: str, *items: str) -> str:
    """A request to publish."""
    return pubsub(f"<publish node={quoteattr(node)}>{''.join(items)}</publish>")


# -- what is read ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refused:
    """An error: its type, its condition, and the additional one of XEP-0060."""

    type: str
    condition: str
    pubsub: str = ""

    @classmethod
    def of(cls, answer: ET.Element) -> "Refused":
        """Read an answer, which must be a well-formed error."""
        assert answer.get("type") == "error", ET.tostring(answer)
        (error,) = answer.iterfind(f"{{{CLIENT}}}error")
        assert answer[-1] is error
        conditions = [
            local(each)
            for each in error
            if each.tag.startswith(f"{{{STANZAS}}}") and local(each) != "text"
        ]
        beside = [local(each) for each in error if each.tag.startswith(f"{{{ERRORS}}}")]
        (condition,) = conditions
        assert len(beside) <= 1
        return cls(error.get("type", ""), condition, *beside)


# The errors of XEP-0254 §2.3 and §2.4, with their types there.
NOT_FOUND: Final = Refused("cancel", "item-not-found")
FORBIDDEN: Final = Refused("auth", "forbidden")
CONFLICT: Final = Refused("cancel", "conflict")
UNEXPECTED: Final = Refused("wait", "unexpected-request")
BAD_REQUEST: Final = Refused("modify", "bad-request")
NOT_ACCEPTABLE: Final = Refused("modify", "not-acceptable")
INVALID_OPTIONS: Final = Refused("modify", "bad-request", "invalid-options")
TOO_MANY: Final = Refused("wait", "policy-violation", "too-many-subscriptions")
NO_ROOM: Final = Refused("wait", "resource-constraint")


@dataclass(frozen=True, slots=True)
class Delivered:
    """An item of an event, with the attributes of our extensions.

    Attributes:
        to: the receiver of the event.
        id: of the item.
        payload: the text of its payload.
        q: the attributes of our extensions by name.
    """

    to: str
    id: str
    payload: str
    q: dict[str, str]

    @property
    def token(self) -> str:
        return self.q["token"]

    @property
    def named(self) -> tuple[str, str]:
        """Id and token, as a request names them."""
        return self.id, self.token

    @property
    def count(self) -> int:
        return int(self.q.get("delivery-count", "0"))


def extensions(element: ET.Element) -> dict[str, str]:
    """The attributes of our extensions, by name."""
    prefix = f"{{{EXTENSIONS}}}"
    return {
        name.removeprefix(prefix): value
        for name, value in element.attrib.items()
        if name.startswith(prefix)
    }


def is_event(xml: ET.Element, node: str = "") -> bool:
    """Whether it is an event of a node."""
    if local(xml) != "message" or xml.get("type") == "error":
        return False
    about = xml.find(f"{{{EVENT}}}event/*")
    return about is not None and node in {"", about.get("node")}


def kinds(message: ET.Element) -> list[tuple[str, str]]:
    """The items of an event, each as `item`, `retract` or `unlock`."""
    items = message.find(f"{{{EVENT}}}event/{{{EVENT}}}items")
    assert items is not None, ET.tostring(message)
    return [(local(each), each.get("id", "")) for each in items]


def delivered(message: ET.Element) -> list[Delivered]:
    """The items with payload in an event."""
    found = message.iterfind(f"{{{EVENT}}}event/{{{EVENT}}}items/{{{EVENT}}}item")
    return [
        Delivered(
            to=message.get("to", ""),
            id=each.get("id", ""),
            payload="".join(each.itertext()),
            q=extensions(each),
        )
        for each in found
    ]


def values_of(answer: ET.Element) -> dict[str, str]:
    """The fields of the one form in a stanza."""
    (x,) = answer.iter(f"{{{DATA}}}x")
    return {
        field.get("var", ""): field.findtext(f"{{{DATA}}}value", "")
        for field in x.iterfind(f"{{{DATA}}}field")
    }


# -- the peers -------------------------------------------------------------


class Peer(RawClient):
    """A raw client that talks to one queue service."""

    def __init__(self, jid: str, password: str, *, port: int, service: str) -> None:
        super().__init__(jid, password, port=port)
        self.service = service

    @property
    def account(self) -> str:
        """Its bare JID."""
        return self.jid.partition("/")[0]

    async def start_asking(self, content: str, kind: str = "set", to: str = "") -> str:
        """Send a request; returns its id."""
        iq_id = f"raw-{next(_ids)}"
        address = quoteattr(to or self.service)
        await self.send(f"<iq type='{kind}' id='{iq_id}' to={address}>{content}</iq>")
        return iq_id

    async def answered(self, iq_id: str) -> ET.Element:
        """The answer to a request, whatever it is."""
        return await self.expect(
            lambda xml: (
                local(xml) == "iq"
                and xml.get("id") == iq_id
                and xml.get("type") in {"result", "error"}
            )
        )

    async def ask(self, content: str, kind: str = "set", to: str = "") -> ET.Element:
        """Send a request, and return its answer of either type."""
        return await self.answered(await self.start_asking(content, kind, to))

    async def done(self, content: str, kind: str = "set") -> ET.Element:
        """Send a request, whose answer must be a result."""
        answer = await self.ask(content, kind)
        assert answer.get("type") == "result", ET.tostring(answer)
        return answer

    async def refused(self, content: str, kind: str = "set") -> Refused:
        """Send a request, whose answer must be an error."""
        return Refused.of(await self.ask(content, kind))

    async def create(self, node: str, config: Mapping[str, str] | None = None) -> None:
        """Create a node of this name; without configuration it is open."""
        chosen = {"pubsub#access_model": "open", **(config or {})}
        configure = f"<configure>{form(NODE_CONFIG, chosen)}</configure>"
        await self.done(pubsub(f"<create node={quoteattr(node)}/>{configure}"))

    async def configure(self, node: str, **config: str) -> None:
        """Change fields of `queue#`."""
        values = {f"queue#{name}": value for name, value in config.items()}
        content = f"<configure node={quoteattr(node)}>{form(NODE_CONFIG, values)}"
        await self.done(pubsub(f"{content}</configure>", OWNER))

    async def affiliate(self, node: str, **affiliations: str) -> None:
        """Change affiliations, by user name."""
        each = "".join(
            f"<affiliation jid='{user}@localhost' affiliation='{what}'/>"
            for user, what in affiliations.items()
        )
        content = f"<affiliations node={quoteattr(node)}>{each}</affiliations>"
        await self.done(pubsub(content, OWNER))

    async def subscribe(
        self,
        node: str,
        requests: int = 1,
        *,
        jid: str = "",
        options: Mapping[str, str] | None = None,
    ) -> str:
        """Subscribe this full JID, or another; returns the subid."""
        chosen = {"pubsub#queue_requests": str(requests), **(options or {})}
        answer = await self.done(subscribe(node, jid or self.jid, chosen))
        (subscription,) = answer.iter(f"{{{PUBSUB}}}subscription")
        return subscription.get("subid", "")

    async def publish(self, node: str, *items: str) -> list[str]:
        """Publish; returns the ids that the service answers."""
        answer = await self.done(publish(node, *items))
        path = f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}publish/{{{PUBSUB}}}item"
        return [each.get("id", "") for each in answer.iterfind(path)]

    async def event(self, node: str = "") -> ET.Element:
        """The next event of any kind."""
        return await self.expect(lambda xml: is_event(xml, node))

    async def items(self, node: str = "") -> ET.Element:
        """The next event with items."""
        return await self.expect(
            lambda xml: is_event(xml, node) and bool(delivered(xml))
        )

    async def item(self, node: str = "") -> Delivered:
        """The next item, in an event of its own."""
        (one,) = delivered(await self.items(node))
        return one

    async def told(self, what: str, *item_ids: str) -> None:
        """Wait for the event that these items were retracted, or unlocked."""
        await self.expect(
            lambda xml: (
                is_event(xml)
                and xml.find(f"{{{EVENT}}}event/{{{EVENT}}}items") is not None
                and kinds(xml) == [(what, item_id) for item_id in item_ids]
            )
        )

    async def no_items(self) -> None:
        """Prove that no further item has come."""
        await self.synced()
        assert not [each for xml in self.received() for each in delivered(xml)]

    async def synced(self) -> None:
        """Return when the service has handled everything before."""
        await self.ask(pubsub("<affiliations/>"), "get")

    def forget(self) -> None:
        """Drop everything that has come and was not asked for."""
        self._stanzas.clear()

    async def nothing(self, node: str = "") -> None:
        """Prove that no further event has come."""
        await self.synced()
        events = self.received(lambda xml: is_event(xml, node))
        assert not events, [ET.tostring(each) for each in events]

    async def browse(self, node: str, state: str = "") -> dict[str, dict[str, str]]:
        """The items of a node, each with the attributes of our extensions."""
        asked = f" q:state='{state}'" if state else ""
        content = f"<items node={quoteattr(node)}{asked}/>"
        answer = await self.done(pubsub(content), "get")
        path = f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}items/{{{PUBSUB}}}item"
        return {each.get("id", ""): extensions(each) for each in answer.iterfind(path)}

    async def stats(self, node: str) -> dict[str, str]:
        """The numbers of a node, without their prefix."""
        query = f"<query xmlns='{DISCO_INFO}' node={quoteattr(node)}/>"
        found = values_of(await self.done(query, "get"))
        return {
            var.removeprefix("queue#"): value
            for var, value in found.items()
            if var.startswith("queue#")
        }

    async def until_stats(self, node: str, **wanted: str) -> None:
        """Ask for the stats until they are as expected, and written."""

        async def are_so() -> bool:
            return wanted.items() <= (await self.stats(node)).items()

        await until(are_so)
        # The counts are those of the moment; the rest is on disk.
        await self.synced()

    async def be_present(self) -> None:
        """Directed presence, as a worker sends it."""
        await self.send(f"<presence to={quoteattr(self.service)}/>")

    async def go(self) -> None:
        """Directed unavailable presence."""
        await self.send(f"<presence type='unavailable' to={quoteattr(self.service)}/>")


def peer(queues: Served, name: str) -> Peer:
    """A raw client of `user/resource`; `async with` logs it in."""
    user, _, resource = name.partition("/")
    server = queues.server
    return Peer(
        f"{user}@{server.domain}/{resource}",
        server.accounts[user],
        port=server.c2s_port,
        service=queues.jid,
    )


@contextlib.asynccontextmanager
async def peers(queues: Served, *names: str) -> AsyncIterator[list[Peer]]:
    """Raw clients, logged in."""
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(peer(queues, name)) for name in names]
