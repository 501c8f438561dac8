"""One of our endpoints at the embedded server, and hostile peers that write to it.

The bytes go from the server's end of the connection through slixmpp's parser, with any
`from`: stanzas arrive that no server would let pass. Everything that the endpoint
writes is recorded, and reaches nobody. It gets no answers in the place of peers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import traceback
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock
from xml.etree import ElementTree as ET

from slixmpp import ClientXMPP, ComponentXMPP
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

from grammar import Asked, Written
from qos.testing.clients import logged_in
from qos.testing.queues import queue_service
from qos.testing.server import LoopbackServer
from qos.testing.session import Connection
from qos.testing.stream import Stanza
from waiting import LIMIT_S, limit
from xep_0254 import XEP_0254
from xep_qos import XEP_QOS

__all__ = ["Siege", "besieged_device", "besieged_service", "size_of"]

QUEUES = "queue.localhost"
LOG = "log@localhost/1"

#: There is no TLS here, and reading the system's certificates takes 0.2 s per stream.
_NO_CERTIFICATES = mock.patch.object(ssl.SSLContext, "set_default_verify_paths")

_PING = "<iq type='get' id='{}' from='{}' to='{}'><ping xmlns='urn:xmpp:ping'/></iq>"


class Siege:
    """The connection of the besieged endpoint, at the server's end.

    Attributes:
        written: everything that it has written since.
        errors: log records of errors, and errors of the event loop.
    """

    def __init__(
        self,
        server: LoopbackServer,
        xmpp: ClientXMPP | ComponentXMPP,
        roots: Sequence[object],
    ) -> None:
        self.jid = str(xmpp.boundjid.full)
        self.xmpp = xmpp
        self.roots = roots
        self.written: list[ET.Element] = []
        self.errors: list[Any] = []
        self._changed = asyncio.Event()
        self._sentinels = 0
        router: Any = server._router
        self._router = router
        self._connection = self._found()
        self._accept = self._router.accept
        self._router.accept = self._take

    def _found(self) -> Connection:
        found = {**self._router.sessions, **self._router.components}
        connection: Connection = found[self.jid]
        return connection

    def _take(self, origin: Connection, sender: str, stanza: Stanza) -> None:
        if origin is not self._connection:
            self._accept(origin, sender, stanza)
            return
        self.written.append(stanza.tree)
        self._changed.set()

    @property
    def is_up(self) -> bool:
        """Whether its stream is still up."""
        return self._connection._reader is not None

    def send(self, data: bytes) -> None:
        """Write to the endpoint."""
        self._connection.send(data)
        self._connection.flush()

    async def come_back(self) -> None:
        """Let it end its stream, or end the stream, and wait for the next one."""
        again = self.xmpp.wait_until("session_start", timeout=LIMIT_S)
        self._connection.flush()
        asyncio.get_running_loop().call_later(0.1, self._connection.abort)
        await again
        self._connection = self._found()

    async def settle(self, asked: Sequence[Asked] = ()) -> None:
        """Wait until each of these has an answer, and all input is handled."""
        async with limit():
            wanted = Counter(asked)
            while self.is_up and wanted - Counter(self.answers()):
                self._changed.clear()
                await self._changed.wait()
            # Also when something comes too often. Twice: slixmpp's answer to the first
            # may be ahead of answers of ours, which the wire writes together.
            for _ in range(2):
                await self._sentinel()

    async def _sentinel(self) -> None:
        """Ask something that slixmpp answers, and wait for its answer."""
        self._sentinels += 1
        last = Asked("alice@localhost/sentinel", f"sentinel {self._sentinels}")
        self.send(_PING.format(last.iq_id, last.source, self.jid).encode())
        while self.is_up and last not in self.answers():
            self._changed.clear()
            await self._changed.wait()

    def answers(self) -> list[Asked]:
        """The receiver and id of each of its answers."""
        return [
            Asked(xml.get("to", ""), xml.get("id", ""))
            for xml in self.written
            if xml.tag == "{jabber:client}iq" and xml.get("type") in {"result", "error"}
        ]

    async def endure(
        self, stanzas: Sequence[Written], cuts: Sequence[int] = ()
    ) -> None:
        """Send these, cut at these places, and wait for the answers."""
        data = b"".join(each.data for each in stanzas)
        places = sorted({place % (len(data) + 1) for place in cuts} | {0, len(data)})
        for start, end in pairwise(places):
            self.send(data[start:end])
            await asyncio.sleep(0)
        await self.settle([each.asked for each in stanzas if each.asked])

    @property
    def reported(self) -> Counter[str]:
        """The events of XEP-0337 that it has sent, by the account that they are about."""
        return Counter(
            log.get("subject", "").partition("/")[0]
            for xml in self.written
            for log in xml.iter("{urn:xmpp:eventlog}log")
        )


@contextlib.asynccontextmanager
async def besieged_device(**options: Any) -> AsyncIterator[Siege]:
    """Bob, who takes messages and asks queue services, with these options of xep_qos."""
    accounts = {"bob": "secret", "alice": "secret"}
    rosters = {"bob": {"alice@localhost": "both"}}
    plugins = {"xep_qos": {"event_log_to": LOG, **options}, "xep_0254": {}}
    with _NO_CERTIFICATES:
        async with (
            LoopbackServer(accounts=accounts, rosters=rosters) as server,
            logged_in(server, "bob/b", plugins, prepare=_take_messages) as bob,
        ):
            roots = [XEP_QOS.of(bob), XEP_0254.of(bob)]
            with _watched(Siege(server, bob, roots)) as siege:
                yield siege


def _take_messages(client: ClientXMPP) -> None:
    """An application that takes each message, whatever its content."""
    path = MatchXPath("{jabber:client}message")
    client.register_handler(Callback("takes", path, lambda _message: None))


@contextlib.asynccontextmanager
async def besieged_service(folder: Path) -> AsyncIterator[Siege]:
    """A queue service, as a component."""
    components = {QUEUES: "secret"}
    store = f"sqlite:{folder / 'queues.db'}"
    with _NO_CERTIFICATES:
        async with (
            LoopbackServer(accounts={}, components=components) as server,
            queue_service(server, QUEUES, store=store, creators="anyone") as served,
        ):
            xmpp = served._xmpp
            with _watched(Siege(server, xmpp, [served, XEP_QOS.of(xmpp)])) as siege:
                yield siege


@contextlib.contextmanager
def _watched(siege: Siege) -> Iterator[Siege]:
    """Collect errors, wherever they are caught."""
    loop = asyncio.get_running_loop()
    handler = logging.Handler(logging.ERROR)

    def note(problem: Any) -> None:
        if not _is_slixmpps(problem):
            siege.errors.append(problem)

    handler.emit = note  # type: ignore[method-assign,assignment]
    root = logging.getLogger()
    root.addHandler(handler)
    loop.set_exception_handler(lambda _, context: note(context))
    try:
        yield siege
    finally:
        root.removeHandler(handler)
        loop.set_exception_handler(None)


def _is_slixmpps(problem: Any) -> bool:
    """Whether slixmpp 1.17 failed by itself, without one of our functions.

    It fails on an error without a known condition, in answer to a query of its own; and
    it keeps no reference to the task that it starts for a peer's capabilities.
    """
    text = str(problem)
    if isinstance(problem, logging.LogRecord):
        text = problem.getMessage()
        if problem.name.startswith("slixmpp.") and problem.exc_info:
            frames = traceback.walk_tb(problem.exc_info[2])
            modules = [frame.f_globals["__name__"] for frame, _ in frames]
            return not any(name.startswith(("qos.", "xep_")) for name in modules)
    return "Task was destroyed" in text and "XMLStream.event" in text


def size_of(roots: Sequence[object]) -> int:
    """The number of entries of ours in all of these, at any depth."""
    seen: set[int] = set()
    left: list[Any] = list(roots)
    size = 0
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, type | ModuleType | Callable):
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            size += len(each)
            left += [*each.keys(), *each.values()]
        elif isinstance(each, tuple):
            left += each
        elif isinstance(each, list | set | frozenset | deque):
            size += len(each)
            left += each
        elif type(each).__module__.startswith(("qos.", "xep_")):
            left += list(getattr(each, "__dict__", {}).values())
            for kind in type(each).__mro__:
                names = getattr(kind, "__slots__", ())
                left += [
                    getattr(each, name)
                    for name in ((names,) if isinstance(names, str) else names)
                    if hasattr(each, name)
                ]
    return size
