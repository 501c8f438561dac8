"""A client or component with `xep_qos`, its messages, and its failures.

    async with device(prosody, "bob/lamp", store=f"sqlite:{path}") as bob:
        await bob.arrivals.take(1)

The options are those of the plugin; options that make a test wait are short here.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Self
from xml.etree import ElementTree as ET

from slixmpp import ClientXMPP, ComponentXMPP, Message
from slixmpp.xmlstream.stanzabase import StanzaBase

from clients import Plugins, Tls, be_available, log_in, make_client, make_component
from qos.core.message.model import Level, OutgoingState
from qos.engine import Delivery, Outcome
from qos.stream.closing import close
from qos.testing.xmpp_server import XmppServer
from raw_client import local
from waiting import LIMIT_S, limit, until
from xep_qos import XEP_QOS, IncomingInfo

# The plugin's defaults are 2 and 300 s.
RETRY_FIRST_S = 0.2
RETRY_MAX_S = 1.0

#: A time that comes when the test is over, unless it turns its clock.
NEVER_S = 1_000.0
NO_RETRY: dict[str, Any] = {"retry_first_s": NEVER_S, "retry_max_s": NEVER_S}

Matches = Callable[[ET.Element], bool]


async def outcome_of(delivery: Delivery) -> Outcome:
    """Wait for the end of a message, for a limited time."""
    async with limit():
        return await delivery.outcome()


def child(iq: ET.Element) -> str:
    """The local name of the first child: `assured`, `received`, `error`, …; or ''."""
    return local(iq[0]) if len(iq) else ""


def _children(iq: ET.Element) -> set[str]:
    """The local names of the first children: of the iq, or of each in its batch."""
    if child(iq) != "batch":
        return {child(iq)}
    return {local(each) for each in iq[0]}


def request(kind: str) -> Matches:
    """Match an iq by a request in it: `acknowledged`, `assured` or `deliver`.

    In a batch it may be any of the requests.
    """
    return lambda xml: xml.get("type") == "set" and kind in _children(xml)


def error(condition: str) -> Matches:
    """Match an error stanza by its condition, or the answers to a batch with such an
    error.
    """

    def matches(xml: ET.Element) -> bool:
        return (xml.get("type") == "error" or child(xml) == "batch") and any(
            local(element) == condition for element in xml.iter()
        )

    return matches


def answers(kind: str) -> Matches:
    """Match an iq result by its first child's name ('': an empty result)."""
    return lambda xml: (
        local(xml) == "iq" and xml.get("type") == "result" and child(xml) == kind
    )


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that reached the application, with the plugin's information on it."""

    message: Message
    info: IncomingInfo | None

    @property
    def body(self) -> str:
        return str(self.message["body"])


class Arrivals:
    """The application: it handles `message` events like any other."""

    def __init__(self, xmpp: ClientXMPP | ComponentXMPP) -> None:
        self.all: list[Arrival] = []
        self._taken = 0
        self._changed = asyncio.Event()
        self._qos = XEP_QOS.of(xmpp)
        xmpp.add_event_handler("message", self._on_message)

    @property
    def bodies(self) -> list[str]:
        """The bodies in the order of their arrival."""
        return [arrival.body for arrival in self.all]

    async def reach(self, count: int) -> None:
        """Wait until this many have come, including those that were taken before."""
        try:
            async with limit():
                while len(self.all) < count:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            text = f"{len(self.all)} of {count} messages in {LIMIT_S} s"
            raise TimeoutError(text) from None

    async def take(self, count: int) -> tuple[Arrival, ...]:
        """Wait for this many that were not taken yet, and take them."""
        start = self._taken
        await self.reach(start + count)
        self._taken += count
        return tuple(self.all[start : self._taken])

    def _on_message(self, message: Message) -> None:
        self.all.append(Arrival(message, self._qos.incoming(message)))
        self._changed.set()


class Tap:
    """An `in` filter of the application: it sees every stanza, and can lose some.

    A stanza lost here was received by the stream, so XEP-0198 has counted it. It never
    reaches the plugin, as if the connection had been cut before.
    """

    def __init__(self, xmpp: ClientXMPP | ComponentXMPP) -> None:
        self.seen: list[ET.Element] = []
        self.lost: list[StanzaBase] = []
        self._losing: Matches | None = None
        self._changed = asyncio.Event()
        self._xmpp = xmpp
        xmpp.add_filter("in", self._filter)

    def lose(self, matches: Matches | None) -> None:
        """From now on lose matching stanzas; None: none."""
        self._losing = matches

    def count(self, matches: Matches) -> int:
        """How many matching stanzas were seen, including the lost ones."""
        return sum(map(matches, self.seen))

    async def wait_lost(self, count: int = 1) -> None:
        """Wait until this many were lost; repeats of one do not count."""
        await self._wait(lambda: len({x["id"] for x in self.lost}) >= count)

    async def wait_seen(self, matches: Matches, count: int = 1) -> None:
        """Wait until this many were seen since the beginning."""
        await self._wait(lambda: self.count(matches) >= count)

    def release(self) -> None:
        """Receive the lost stanzas after all, and lose nothing more."""
        self._losing = None
        lost, self.lost = self.lost, []
        for stanza in lost:
            self._xmpp.recv_stanza(stanza)

    async def _wait(self, condition: Callable[[], bool]) -> None:
        async with limit():
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def _filter(self, stanza: StanzaBase) -> StanzaBase | None:
        self.seen.append(stanza.xml)
        self._changed.set()
        if self._losing is not None and self._losing(stanza.xml):
            self.lost.append(stanza)
            return None
        return stanza


class Device:
    """A client or component with the plugin. `device` and `component` make them."""

    def __init__(self, server: XmppServer, xmpp: ClientXMPP | ComponentXMPP) -> None:
        self.server = server
        self.xmpp = xmpp
        self.qos = XEP_QOS.of(xmpp)
        self.arrivals = Arrivals(xmpp)
        self.tap = Tap(xmpp)
        self.sessions = 0
        self.resumptions = 0
        self._logins_before = 0
        self._keeping: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        xmpp.add_event_handler("session_start", self._started)
        xmpp.add_event_handler("session_resumed", self._resumed)
        xmpp.add_event_handler("disconnected", self._disconnected)

    @property
    def jid(self) -> str:
        """The full JID of a client, once it is bound."""
        return str(self.xmpp.boundjid.full)

    @property
    def client(self) -> ClientXMPP:
        """The client itself, for methods that only a client has."""
        assert isinstance(self.xmpp, ClientXMPP)
        return self.xmpp

    @property
    def stream_management(self) -> Any:
        """slixmpp's XEP-0198, with its counters."""
        return self.client.plugin["xep_0198"]

    def message(self, to: str, body: str = "") -> Message:
        """An empty message of the kind of this stream."""
        return self.xmpp.make_message(to, body)

    async def log_in(self, *, available: bool = True) -> None:
        """Make the first connection."""
        await log_in(self.xmpp, self.server)
        if available and isinstance(self.xmpp, ClientXMPP):
            await be_available(self.xmpp)
        await self.qos.roster_known()

    def cut(self) -> None:
        """Lose the connection, without closing the stream."""
        self._logins_before = self._logins
        if self.xmpp.transport is not None:
            self.xmpp.transport.abort()

    async def go_offline(self) -> None:
        """End the session in order, for `come_back`."""
        self._logins_before = self._logins
        await self.xmpp.disconnect()

    async def come_back(self) -> None:
        """Connect again after `cut` or `go_offline`; resumes the stream if possible."""
        if self._keeping is None:
            await until(lambda: not self.xmpp.is_connected())
            self._connect()
        await until(lambda: self._logins > self._logins_before)

    def keep_connected(self) -> None:
        """From now on reconnect, as an application does."""
        self._keeping = asyncio.create_task(self._keep_connected())

    async def ping(self) -> None:
        """Return when the server has handled everything that was sent before."""
        iq = self.xmpp.make_iq_get(ito=self.server.domain)
        iq.append(ET.Element("{urn:xmpp:ping}ping"))
        await iq.send(timeout=LIMIT_S)  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """End everything, and return when the store is closed."""
        if self._keeping is not None:
            self._keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeping
            self._keeping = None
        await self.xmpp.disconnect()
        await self.qos.aclose()
        await close(self.xmpp)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def _logins(self) -> int:
        return self.sessions + self.resumptions

    def _connect(self) -> None:
        component = isinstance(self.xmpp, ComponentXMPP)
        server = self.server
        port = server.component_port if component else server.c2s_port
        self.xmpp.connect(server.address, port)

    async def _keep_connected(self) -> None:
        if not self.xmpp.is_connected():
            self._lost.set()
        while True:
            await self._lost.wait()
            self._lost.clear()
            # After a refused connection slixmpp would wait one second, then three.
            await until(lambda: _is_open(self.server))
            self._connect()

    def _started(self, _event: object) -> None:
        self.sessions += 1
        if self.sessions > 1 and isinstance(self.xmpp, ClientXMPP):
            self.xmpp.send_presence()

    def _resumed(self, _event: object) -> None:
        self.resumptions += 1

    def _disconnected(self, _event: object) -> None:
        self._lost.set()


def patient(end: Device) -> None:
    """Let it wait for a peer's disco#info, however short its retries are.

    Otherwise a peer that has not answered before the first retry counts as one that says
    nothing, which needs another form.
    """
    end.qos._endpoint._discovery._features._timeout_s = LIMIT_S


async def counters_agree(end: Device) -> None:
    """Prove that both ends of a stream with XEP-0198 have counted alike.

    For what we sent: the server acknowledges all of it. (If it acknowledges more than
    was sent, slixmpp logs an error.) For what we received: the stream is cut and
    resumed. The server then refuses a count that is too high, and repeats the stanzas
    that a low count leaves out.
    """
    management = end.stream_management
    await end.ping()
    management.request_ack()
    await until(lambda: not management.unacked_queue)
    resumptions = end.resumptions
    before = len(end.tap.seen)
    end.cut()
    await end.come_back()
    assert end.resumptions == resumptions + 1
    await end.ping()
    came = [local(xml) for xml in end.tap.seen[before:]]
    assert [name for name in came if name in {"iq", "message", "presence"}] == ["iq"]


async def exchange_all_levels(one: Device, other: Device, to: str, sender: str) -> None:
    """Send one message at each level, and check the results on both sides."""
    for level in Level:
        body = f"{level.value} to {to}: <&> 'ä€😀'\n\t "
        outcome = await one.qos.send(to, body, level=level)
        (arrival,) = await other.arrivals.take(1)
        assert arrival.body == body
        assert arrival.message["from"] == sender
        assert arrival.message["to"] == to
        assert outcome.to == to
        if level is Level.UNACKNOWLEDGED:
            assert outcome.status is OutgoingState.SENT
            assert arrival.info is None
        else:
            assert outcome.status is OutgoingState.DELIVERED
            assert outcome.attempts == 1 + (level is Level.ASSURED)
            assert arrival.info is not None
            assert (arrival.info.level, arrival.info.redelivered) == (level, False)
            if level is Level.ASSURED:
                assert arrival.info.msg_id == outcome.msg_id
    assert len(one.qos.outstanding()) == 0


async def settle(one: Device, other: Device) -> None:
    """Return when nothing, for example no repeat, is in flight between the two."""
    for sender, receiver in ((one, other), (other, one)):
        before = len(receiver.arrivals.all)
        sender.message(receiver.jid, "after all that").send()
        await receiver.arrivals.reach(before + 1)


async def _is_open(server: XmppServer) -> bool:
    """Whether the server takes connections."""
    try:
        _, writer = await asyncio.open_connection(server.address, server.c2s_port)
    except OSError:
        return False
    writer.transport.abort()
    return True


def make_device(
    server: XmppServer,
    name: str,
    *,
    smacks: bool = False,
    plugins: Plugins | None = None,
    tls: Tls = "off",
    **settings: object,
) -> Device:
    """A client with the plugin that is not connected yet: see `Device.log_in`.

    Args:
        server: the server of its account.
        name: `user/resource`, or a user alone.
        smacks: whether it loads XEP-0198.
        plugins: further plugins.
        tls: as for `make_client`.
        settings: the options of xep_qos.
    """
    xmpp = make_client(server, name, _plugins(smacks, plugins, settings), tls=tls)
    # By default slixmpp accepts all subscription requests; the plugin warns of that.
    xmpp.auto_authorize = None
    return Device(server, xmpp)


@contextlib.asynccontextmanager
async def device(
    server: XmppServer,
    name: str,
    *,
    smacks: bool = False,
    plugins: Plugins | None = None,
    tls: Tls = "off",
    available: bool = True,
    **settings: object,
) -> AsyncIterator[Device]:
    """A client with the plugin, logged in; arguments as for `make_device`.

    With `available` false nobody sees it until it sends presence itself.
    """
    made = make_device(
        server, name, smacks=smacks, plugins=plugins, tls=tls, **settings
    )
    async with made:
        await made.log_in(available=available)
        yield made


@contextlib.asynccontextmanager
async def component(
    server: XmppServer, jid: str, *, plugins: Plugins | None = None, **settings: object
) -> AsyncIterator[Device]:
    """A component with the plugin; arguments as for `make_device`."""
    xmpp = make_component(server, jid, _plugins(False, plugins, settings))
    async with Device(server, xmpp) as made:
        await made.log_in()
        yield made


def _plugins(
    smacks: bool, plugins: Plugins | None, settings: dict[str, object]
) -> Plugins:
    short: dict[str, object] = {
        "store": "memory:",
        "retry_first_s": RETRY_FIRST_S,
        "retry_max_s": RETRY_MAX_S,
    }
    managed: Plugins = {"xep_0198": {}} if smacks else {}
    return {**managed, **(plugins or {}), "xep_qos": {**short, **settings}}


def numbered(count: int, prefix: str = "") -> list[str]:
    """This many bodies that sort in their order."""
    return [f"{prefix}{number:04}" for number in range(count)]
