"""One end of a row, in a process of its own: `python -m benchmarks.node`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from slixmpp import ClientXMPP

import xep_qos  # noqa: F401 - makes the plugin known
from benchmarks.arrivals import Arrivals
from benchmarks.floor import IqReceiver, IqSender, RawReceiver, RawSender
from benchmarks.meter import Meter
from benchmarks.sample import Work
from benchmarks.times import packed
from benchmarks.ways import PluginReceiver, PluginSender, Receiver, Route, Sender
from qos.core.backoff import Backoff
from qos.core.message.model import Level
from qos.errors import CannotConnect
from qos.stream.login import AccountSession, ComponentSession
from qos.stream.server import Component, Login
from qos.stream.session import Session
from qos.testing.child import Command, run_commands

__all__ = ["Node", "Task", "live"]

_MANAGED_S_MAX = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The task of a process.

    Attributes:
        login: the account, or the component.
        sends: whether it is the sender.
        way: `plugin`, `iq` or `raw`: how messages are sent and received.
        level: for `plugin`: the level of the messages.
        steps: for the other two: the number of requests for a message.
        plugins: the options of plugins to load, by plugin name.
        arrivals: the path of a pipe; see ways.PluginSender.
        pause_s: the time between the end of a message and the next.
        senders: the messages are from so many addresses of the component in turn; 0:
            they are from an account. `receivers`: likewise, to so many.
    """

    login: Login | Component
    sends: bool
    way: str
    level: str = ""
    steps: int = 0
    plugins: dict[str, dict[str, Any]]
    arrivals: str | None = None
    pause_s: float = 0.0
    senders: int = 0
    receivers: int = 0

    def to_json(self) -> dict[str, Any]:
        """The task in the form for stdin, because it contains a password."""
        login = asdict(self.login)
        if isinstance(self.login, Login):
            ca_file = self.login.ca_file
            login["ca_file"] = ca_file and str(ca_file)
        return asdict(self) | {"login": login}

    @classmethod
    def from_json(cls, task: dict[str, Any]) -> Self:
        """The task from this form."""
        login = task["login"]
        login |= {"backoff": Backoff(**login["backoff"])}
        if "secret" in login:
            return cls(**task | {"login": Component(**login)})
        ca_file = login["ca_file"]
        login |= {"ca_file": ca_file and Path(ca_file)}
        return cls(**task | {"login": Login(**login)})


class Node:
    """The commands of a node: `connect`, `begin`, and then those of its task.

    Args:
        stack: closes everything in the end.
    """

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._task: Task
        self._client: Any  # ClientXMPP | ComponentXMPP
        self._meter: Meter
        self._sender: Sender
        self._receiver: Receiver

    async def connect(self, *, task: dict[str, Any]) -> dict[str, object]:
        """Log in; returns its own JID, and the time to load the plugins."""
        self._task = Task.from_json(task)
        session = _session(self._task.login)
        await self._stack.enter_async_context(session)
        self._client = session.xmpp
        if self._task.sends:
            self._meter = Meter(self._client)
        began = time.perf_counter()
        for plugin, options in self._task.plugins.items():
            self._client.register_plugin(plugin, options)
        loaded_s = time.perf_counter() - began
        session.start()

        async def ready() -> None:
            await session.online.wait()
            if "xep_0198" in self._task.plugins:
                await _managed(self._client)

        await session.work(ready())
        return {"jid": self._client.boundjid.full, "loaded_s": loaded_s}

    async def begin(self, *, peer: str) -> None:
        """Get ready for messages to this peer, or from it."""
        if self._task.sends:
            self._sender = _sender(self._task, self._client, peer)
            self._stack.callback(self._sender.close)
        else:
            self._receiver = _receiver(self._task, self._client, peer)

    async def send(self, **work: Any) -> dict[str, object]:
        """Send.

        Returns when each message was given and ended, and the resources used.
        """
        wire_bytes, stanzas = self._meter.wire_bytes, self._meter.stanzas
        times = await self._sender.send(Work(**work), pause_s=self._task.pause_s)
        return {
            **packed(times),
            "wire_bytes": self._meter.wire_bytes - wire_bytes,
            "stanzas": self._meter.stanzas - stanzas,
        }

    async def received(self) -> dict[str, object]:
        """Return the number of messages handed over so far; see ways.Receiver."""
        return {"taken": self._receiver.taken}

    @property
    def commands(self) -> list[Command]:
        """The commands that it executes."""
        return [self.connect, self.begin, self.send, self.received]


async def live(kind: type[Node] = Node) -> None:
    """Run as one of these until stdin ends."""
    async with AsyncExitStack() as stack:
        await run_commands(kind(stack).commands)


def _session(login: Login | Component) -> Session:
    if isinstance(login, Login):
        return AccountSession(login, quiet=True)
    return ComponentSession(login)


async def _managed(client: ClientXMPP) -> None:
    """Wait until the stream is managed (XEP-0198)."""
    management = client.plugin["xep_0198"]
    try:
        async with asyncio.timeout(_MANAGED_S_MAX):
            # Its event may have come before we could wait for it.
            while not management.enabled_out:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise CannotConnect("the server does not manage streams (XEP-0198)") from None


def _sender(task: Task, client: ClientXMPP, peer: str) -> Sender:
    if task.way == "plugin":
        level = Level(task.level)
        routes = _routes(task, peer)
        return PluginSender(client, routes, level=level, arrivals=_arrivals(task))
    way = IqSender if task.way == "iq" else RawSender
    return way(client, peer, steps=task.steps)


def _routes(task: Task, peer: str) -> list[Route]:
    if task.senders:
        return [(own, peer) for own in _addresses(task.login.jid, task.senders)]
    if task.receivers:
        return [("", each) for each in _addresses(peer, task.receivers)]
    return [("", peer)]


def _addresses(domain: str, count: int) -> Iterator[str]:
    return (f"{number}@{domain}/bench" for number in range(count))


def _receiver(task: Task, client: ClientXMPP, peer: str) -> Receiver:
    if task.way == "plugin":
        return PluginReceiver(client, arrivals=_arrivals(task))
    way = IqReceiver if task.way == "iq" else RawReceiver
    return way(client, peer)


def _arrivals(task: Task) -> Arrivals | None:
    return None if task.arrivals is None else Arrivals(task.arrivals)


if __name__ == "__main__":
    asyncio.run(live())
