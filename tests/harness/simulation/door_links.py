"""AMQP connections without sockets, at the real gateway, in virtual time.

One peer attaches one name again and again, on two sessions and to two nodes, as a sender
and as a receiver, whose terminus may outlive its link; and now and then to a node that is
not for it. A stranger sends to a node without a right. Frames are made and read
here; nothing of proton is on this side.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from typing import Any, cast

from amqp_frames import (
    ATTACH,
    BEGIN,
    DETACH,
    DISPOSITION,
    FALSE,
    FLOW,
    OPEN,
    TRANSFER,
    TRUE,
    WINDOW,
    described,
    frame,
    transfer,
)
from qos.amqp import incoming
from qos.amqp.connection import AmqpConnection
from qos.amqp.gateway import Gateway
from qos.amqp.rights import check_publish
from qos.core.amqp import values
from qos.core.amqp.frames import FrameCutter, fields_of, list_at
from qos.core.amqp.messages import ReceivedMessage, read_message
from qos.core.amqp.values import NULL, decode
from qos.core.queue.requests import Create, Request
from qos.engine.doors import Arrival
from qos.engine.payers import TURN_S
from qos.engine.queue_engine import QueueEngine
from simulation import door_invariants as invariants
from simulation.door_scene import Scene
from simulation.queue_store import QueueServiceDisk

__all__ = ["links"]

_PAT, _EVE, _BOSS = "pat@x", "eve@x", "boss@x"

#: The nodes of the peer, and one that is not for the stranger.
_NODES, _PRIVATE = ("left", "right"), "private"

#: Turns of the name, and seconds between them at most.
_TURNS, _PAUSE_S = 30, 0.05

#: Seconds after which all that was sent is answered.
_SETTLED_S = 0.4

#: The session of attaches that are refused.
_REFUSED = 2
_SESSIONS = 0, 1, _REFUSED

#: Seconds for which the terminus of a receiver may outlive its link.
_KEPT_S = 2

#: Messages of the stranger in one write, and seconds for each.
_BURST, _FRAME_S = 80, 0.0005

_ACCEPTED = 0x24
_MARK = b"of a stranger"


class _Transport(asyncio.Transport):
    """The socket of a connection: what is written goes to the peer soon."""

    def __init__(self, peer: _Peer) -> None:
        super().__init__({"peername": ("192.0.2.1", 1)})
        self._peer = peer
        self._closing = False

    def write(self, data: Any) -> None:
        """See asyncio.Transport."""
        asyncio.get_running_loop().call_soon(self._peer.receive, bytes(data))

    def is_closing(self) -> bool:
        """See asyncio.Transport."""
        return self._closing

    def close(self) -> None:
        """See asyncio.Transport."""
        self._closing = True
        self._peer.closed = True

    abort = close

    def is_reading(self) -> bool:
        """See asyncio.Transport."""
        return True

    def pause_reading(self) -> None:
        """See asyncio.Transport: a peer of this kind sends little."""

    def resume_reading(self) -> None:
        """See asyncio.Transport."""

    def get_write_buffer_size(self) -> int:
        """See asyncio.Transport."""
        return 0


class _Arrival:
    """Stands for `qos.engine.doors.Arrival`."""

    address = payer = "192.0.2.1"

    def log_in(self, _account: str) -> None:
        """See Arrival."""

    @contextlib.contextmanager
    def checked(self) -> Iterator[None]:
        """See Arrival."""
        yield


class _Peer:
    """A client with two sessions, and one for what is refused.

    Attributes:
        attached: of living links, by channel and our handle: the node.
        names: the name of each of them.
        accepted: by node, the texts of messages that were accepted.
        closed: the gateway has ended the connection.
    """

    def __init__(self, gateway: Gateway) -> None:
        self.attached: dict[tuple[int, int], str] = {}
        self.names: dict[tuple[int, int], str] = {}
        self.accepted: list[tuple[str, str]] = []
        self.closed = False
        self._handles = itertools.count()
        self._numbers = [itertools.count() for _ in _SESSIONS]
        # By channel: their handles, and ours.
        self._theirs: dict[tuple[int, int], int] = {}
        self._sent: dict[tuple[int, int], tuple[str, str]] = {}
        self._cutter = FrameCutter(1 << 20)
        self._sasl = True
        self.connection = AmqpConnection(gateway, cast(Arrival, _Arrival()))
        self.connection.connection_made(_Transport(self))
        self._write(b"AMQP\x03\x01\x00\x00")
        init = described(0x41, values.symbol("ANONYMOUS"), values.binary(b""))
        self._write(frame(init, kind=1))

    def open(self) -> None:
        """Open the connection and its sessions; the login is over."""
        self._sasl = False
        self._write(b"AMQP\x00\x01\x00\x00")
        self._send(OPEN, values.string("twin"), values.string("x"))
        for channel in _SESSIONS:
            self._send(BEGIN, NULL, values.uint(0), WINDOW, WINDOW, channel=channel)

    def attach(
        self,
        name: str,
        node: str,
        channel: int,
        *,
        receives: bool,
        keeps: bool = False,
    ) -> int:
        """Attach a link, by a handle of its own; returns that.

        Without a node, each message says where it goes. The terminus of a receiver may
        outlive its link.
        """
        handle = next(self._handles)
        address = values.string(node) if node else NULL
        policy = values.symbol("connection-close"), values.uint(_KEPT_S)
        terminus = address, NULL, *(policy if keeps else ())
        source = described(0x28, *terminus) if receives else described(0x28)
        target = described(0x29) if receives else described(0x29, address)
        self._send(
            *(ATTACH, values.string(name), values.uint(handle)),
            *(TRUE if receives else FALSE, NULL, NULL, source, target, NULL, NULL),
            *(() if receives else (values.uint(0),)),
            channel=channel,
        )
        if receives:
            link = (values.uint(handle), values.uint(0), values.uint(5))
            window = (values.uint(0), WINDOW, values.uint(0), WINDOW)
            self._send(FLOW, *window, *link, channel=channel)
        self.names[channel, handle] = name
        return handle

    def send(
        self, channel: int, handle: int, node: str, text: str, *, times: int = 1
    ) -> None:
        """Send a message, or as many in one write."""
        frames = (self._message(channel, handle, node, text) for _ in range(times))
        self._write(b"".join(frames))

    def _message(self, channel: int, handle: int, node: str, text: str) -> bytes:
        number = next(self._numbers[channel])
        self._sent[channel, number] = (node, text)
        message = described(0x73, values.string(text), NULL, values.string(node))
        message += b"\x00" + values.ulong(0x77) + values.string(text)
        return transfer(number, message, handle=handle, channel=channel)

    def lose(self) -> None:
        """Lose the connection."""
        self.connection.connection_lost(None)

    def receive(self, data: bytes) -> None:
        """Take what the gateway writes."""
        if self._sasl:
            return
        for each in self._cutter.cut(data):
            if not each.startswith(b"AMQP"):
                code, at = list_at(each)
                if code >= 0:
                    channel = int.from_bytes(each[6:8], "big")
                    self._take(channel, code, fields_of(each, at)[0])

    def _take(self, channel: int, code: int, fields: list[bytes]) -> None:
        if code == ATTACH:
            self._answered(channel, fields)
        elif code == DETACH:
            handle = self._theirs.pop((channel, _number(fields[0])), -1)
            if self.attached.pop((channel, handle), None) is not None:
                self._send(DETACH, values.uint(handle), TRUE, channel=channel)
            self.names.pop((channel, handle), None)
        elif code == DISPOSITION and len(fields) > 4 and fields[4][2:3] == b"\x24":
            first = _number(fields[1])
            last = first if fields[2] == NULL else _number(fields[2])
            for number in range(first, last + 1):
                sent = self._sent.get((channel, number))
                if sent is not None and fields[0] == TRUE:
                    self.accepted.append(sent)
        elif code == TRANSFER and len(fields) > 1:
            told = (TRUE, fields[1], NULL, TRUE, described(_ACCEPTED))
            self._send(DISPOSITION, *told, channel=channel)

    def _answered(self, channel: int, fields: list[bytes]) -> None:
        """The gateway has attached its end of the oldest link of this name."""
        _, name = decode(fields[0])
        waiting = [
            handle
            for (its, handle), named in self.names.items()
            if its == channel and named == name and (its, handle) not in self.attached
        ]
        if waiting:
            self._theirs[channel, _number(fields[1])] = waiting[0]
            self.attached[channel, waiting[0]] = str(name)

    def _send(self, code: int, *fields: bytes, channel: int = 0) -> None:
        self._write(frame(described(code, *fields), channel=channel))

    def _write(self, data: bytes) -> None:
        if not self.closed:
            self.connection.data_received(data)


def _number(field: bytes) -> int:
    _, value = decode(field)
    assert isinstance(value, int)
    return value


def links(scene: Scene) -> None:
    """Run the peers."""
    engine = scene.engine()
    disk = scene.disk
    gateways = [Gateway(engine, users=None, anonymous=each) for each in (_PAT, _EVE)]
    for gateway in gateways:
        scene.ports.add(gateway)
    asked: list[tuple[Request, str]] = [(Create(node), _PAT) for node in _NODES]
    asked.append((Create(_PRIVATE), _BOSS))
    for request, account in asked:
        engine.request(request, f"{account}/1", lambda *_: None)
    with _watched(scene):
        pat, eve = (_Peer(gateway) for gateway in gateways)
        scene.run(scene.clock.now() + 2.0)
        for peer in (pat, eve):
            peer.open()
        scene.task(_twins(scene, pat))
        scene.task(_stranger(eve))
        until = scene.clock.now() + _TURNS * (_PAUSE_S + _SETTLED_S) + 5.0
        # The step of whoever is alone is as long as a turn, and may end one.
        scene.watch_turns(until, 2.5 * TURN_S)
        scene.run(until)
    _look(scene, pat, disk)
    scene.loop.call_soon(pat.lose)
    scene.run(scene.clock.now() + 5.0)
    left = [each.jid for each in disk.kept.subscriptions.values() if _PAT in each.jid]
    scene.check(invariants.a_link_ends_with_its_connection, left)
    core = engine._core
    if core is not None:
        jids = {jid for node in _NODES for jid in core.nodes[node].subscriptions}
        left = [jid for jid in jids if _PAT in jid]
        scene.check(invariants.a_link_ends_with_its_connection, left)


@contextlib.contextmanager
def _watched(scene: Scene) -> Iterator[None]:
    """Note each message of the stranger that is read; a look at its right takes time."""

    def checking(engine: QueueEngine, node: str, jid: str) -> None:
        scene.works(_FRAME_S)
        check_publish(engine, node, jid)

    def reading(content: bytes, **options: Any) -> ReceivedMessage:
        if _MARK in content:
            scene.check(invariants.nothing_of_a_stranger_is_read, content)
        return read_message(content, **options)

    module = vars(incoming)
    module |= {"read_message": reading, "check_publish": checking}
    try:
        yield
    finally:
        module |= {"read_message": read_message, "check_publish": check_publish}


async def _twins(scene: Scene, peer: _Peer) -> None:
    numbers, channels = itertools.count(), {"out": 0, "in": 1}
    for turn in range(_TURNS):
        node = scene.random.choice(_NODES)
        name = scene.random.choice(("out", "out", "in"))
        # The name is attached on the other session.
        channel = channels[name] = 1 - channels[name]
        keeps = scene.random.random() < 0.5
        handle = peer.attach(name, node, channel, receives=name == "in", keeps=keeps)
        if scene.random.random() < 0.5:
            await asyncio.sleep(scene.random.random() * _PAUSE_S)
        if name == "out":
            for _ in range(scene.random.randrange(4)):
                peer.send(channel, handle, node, f"{turn}-{next(numbers)}")
        await asyncio.sleep(scene.random.random() * _PAUSE_S)
        if not turn % 5:
            await _refused(scene, peer, name)


async def _refused(scene: Scene, peer: _Peer, name: str) -> None:
    """Attach the name to a node that is not for this peer."""
    await asyncio.sleep(_SETTLED_S)
    before = set(peer.attached)
    peer.attach(name, _PRIVATE, _REFUSED, receives=name == "in")
    await asyncio.sleep(_SETTLED_S)
    lost = before - peer.attached.keys()
    scene.check(invariants.a_refused_attach_ends_nothing, name, len(lost))


async def _stranger(peer: _Peer) -> None:
    handle = peer.attach("out", "", 0, receives=False)
    for turn in range(_TURNS // 3):
        await asyncio.sleep(_PAUSE_S)
        text = f"{_MARK.decode()} {turn}"
        peer.send(0, handle, _PRIVATE, text, times=_BURST)


def _look(scene: Scene, peer: _Peer, disk: QueueServiceDisk) -> None:
    """Compare what the peer was told with what is on disk."""
    scene.check(invariants.a_connection_stays, "pat", peer.closed)
    there = [(each.item_id, each.node) for each in disk.kept.items.values()]
    there += [(each.item_id, each.node) for each in disk.kept.ended.values()]
    for node, text in peer.accepted:
        found = {its for item_id, its in there if item_id == f"string:{text}"}
        scene.check(invariants.accepted_is_in_its_node, text, node, found)
    for name in ("out", "in"):
        living = [each for each in peer.attached.values() if each == name]
        scene.check(invariants.a_name_is_attached_once, name, len(living))
