"""The cases: messages from one device to another, over a link that is slow."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import qos
from proxy import LinkFault, Proxy, Shape
from qos import Device
from qos.stream import internals
from qos.testing.xmpp_server import XmppServer
from slow.servers import PASSWORD, server

__all__ = ["ALICE", "CASES", "Case", "Row"]

ALICE, BOB = "alice@localhost/controller", "bob@localhost/lamp"
KB: Final = 1_000

#: The stanzas of a message need about so many bytes more than its body has.
_MORE_BYTES = 1_500

#: A login, the roster, and two requests for features.
_LOGIN_BYTES = 12 * KB

_ASKS = frozenset({"assured", "acknowledged", "deliver"})


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a case at one kind of server.

    Attributes:
        case: its name.
        server: its kind.
        seconds: from the first message until all are delivered, or until the devices
            are online.
        ideal_s: what the link needs.
        carried: the bytes from the sender, of those that its messages have.
        requests: how many have come, of those that are needed.
        handed: how many messages were handed over, of those that were sent.
        limit_s: the most that the case may take.
        crowd: how many devices came in the fullest second, beside the mean.

    What a case does not measure is None.
    """

    case: str
    server: str
    seconds: float
    ideal_s: float
    limit_s: float
    carried: float | None = None
    requests: float | None = None
    handed: float | None = None
    crowd: float | None = None

    @property
    def kept(self) -> bool:
        """Whether it is as it should be."""
        return (
            self.seconds <= self.limit_s
            and (self.carried or 0.0) <= 1.1
            and (self.requests or 0.0) <= 1.0
            and self.handed in {None, 1.0}
            and (self.crowd or 0.0) <= 2.0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case.

    Attributes:
        name: for people.
        only: the kind of server; '': any.
        count: of the messages.
        size: of a body, in bytes.
        level: of the messages.
        shape: of the link of the sender; None: as fast as possible.
        bytes_per_s: what the link or the server carries, in each direction.
        limits: the server has the limits that distributions ship.
        smacks: XEP-0198 is used.
        cuts: how often the connection of the sender is cut meanwhile.
        limit_s: the most seconds that it may take.
    """

    name: str
    only: str = ""
    count: int
    size: int
    level: Any = "assured"
    shape: Shape | None = None
    bytes_per_s: float = 1e9
    limits: bool = False
    smacks: bool = False
    cuts: int = 0
    limit_s: float

    async def run(self, kind: str, folder: Path) -> Row:
        """Do it at a new server of this kind."""
        async with server(
            kind, folder, limits=self.limits, smacks=self.smacks
        ) as place:
            return await self._run(kind, place)

    async def _run(self, kind: str, place: XmppServer) -> Row:
        came: Counter[str] = Counter()
        loop = asyncio.get_running_loop()
        async with (
            Proxy(place.c2s_port, shape=self.shape) as link,
            _device(place.c2s_port, BOB, self.smacks, came) as lamp,
            _device(link.port, ALICE, self.smacks, Counter()) as controller,
            _taking(lamp, came),
        ):
            before = link.carried["up"]
            begun = loop.time()
            async with asyncio.timeout(10 * self.limit_s), asyncio.TaskGroup() as group:
                for number in range(self.count):
                    body = f"{number} ".ljust(self.size, "x")
                    group.create_task(_delivered(controller, body, self.level))
                group.create_task(self._cut(link))
            seconds = loop.time() - begun
            carried = link.carried["up"] - before
        needed = self.count * (self.size + _MORE_BYTES) + self.cuts * _LOGIN_BYTES
        steps = 2 if self.level == "assured" else 1
        return Row(
            case=self.name,
            server=kind,
            seconds=seconds,
            ideal_s=self.count * self.size / self.bytes_per_s,
            carried=carried / needed,
            requests=came["requests"] / (steps * self.count),
            handed=came["messages"] / self.count,
            limit_s=self.limit_s,
        )

    async def _cut(self, link: Proxy) -> None:
        for _ in range(self.cuts):
            await asyncio.sleep(self.limit_s / (4 * self.cuts))
            await link.inflict(LinkFault.CUT, 0)


async def _delivered(controller: Device, body: str, level: Any) -> None:
    outcome = await controller.send(BOB, body, level=level)
    assert outcome.status.value == "delivered", outcome


@contextlib.asynccontextmanager
async def _device(
    port: int, jid: str, smacks: bool, came: Counter[str]
) -> AsyncIterator[Device]:
    """A device that counts the requests that come."""

    def look(stanza: Any) -> Any:
        for content in stanza.xml if stanza.name == "iq" else ():
            inside = list(content) if content.tag.endswith("}batch") else [content]
            came["requests"] += sum(
                each.tag.rpartition("}")[2] in _ASKS for each in inside
            )
        return stanza

    device = qos.connect(
        jid,
        PASSWORD,
        host="127.0.0.1",
        port=port,
        tls="off",
        store="memory:",
        connect_timeout_s=120.0,
        stream_management=smacks,
    )
    async with device:
        internals.filters(device.client, "in").insert(0, look)  # before our own
        yield device


@contextlib.asynccontextmanager
async def _taking(lamp: Device, came: Counter[str]) -> AsyncIterator[None]:
    """Count the messages that are handed over."""

    async def take() -> None:
        async for _ in lamp.messages():
            came["messages"] += 1

    taking = asyncio.create_task(take())
    try:
        yield
    finally:
        taking.cancel()
        await asyncio.wait((taking,))


def _far(name: str, level: str) -> Case:
    return Case(
        name=name,
        count=10,
        size=200,
        level=level,
        shape=Shape(delay_s=2.5),
        limit_s=40.0,
    )


CASES: Final = (
    Case(
        name="30 x 50 kB at 100 kB/s",
        count=30,
        size=50 * KB,
        shape=Shape(bytes_per_s=100 * KB),
        bytes_per_s=100 * KB,
        limit_s=17.0,
    ),
    Case(
        name="8 x 150 kB, Debian's limits of Prosody",
        only="prosody",
        count=8,
        size=150 * KB,
        limits=True,
        bytes_per_s=10 * KB,
        limit_s=138.0,
    ),
    Case(
        name="3 x 100 kB, ejabberd's shaper",
        only="ejabberd",
        count=3,
        size=100 * KB,
        limits=True,
        bytes_per_s=3 * KB,
        limit_s=115.0,
    ),
    Case(
        name="4 x 250 kB at 30 kB/s, XEP-0198",
        count=4,
        size=250 * KB,
        smacks=True,
        shape=Shape(bytes_per_s=30 * KB),
        bytes_per_s=30 * KB,
        limit_s=40.0,
    ),
    _far("10 messages, round trip of 5 s", "assured"),
    _far("10 acknowledged, round trip of 5 s", "acknowledged"),
    Case(
        name="10 messages, cut and resumed three times",
        count=10,
        size=20 * KB,
        smacks=True,
        shape=Shape(bytes_per_s=40 * KB),
        bytes_per_s=40 * KB,
        cuts=3,
        limit_s=20.0,
    ),
)
