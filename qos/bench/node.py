"""One end of a row, in a process of its own: `python -m qos.bench.node`.

It logs in and answers `{"jid": …}`. Asked `{"peer": jid}` it gets ready and answers
`{}`. From then on a sender, asked for some work, answers with what it took; a receiver,
asked anything, how many messages it has handed over.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from slixmpp import ClientXMPP

import xep_qos  # noqa: F401 - makes the plugin known
from qos.bench import child
from qos.bench.figures import percentile
from qos.bench.floor import IqReceiver, IqSender, RawReceiver, RawSender
from qos.bench.meter import Meter
from qos.bench.sample import Work
from qos.bench.ways import PluginReceiver, PluginSender, Receiver, Sender
from qos.cli.account import Login
from qos.cli.logins import AccountSession
from qos.cli.status import CannotConnect
from qos.core.backoff import Backoff
from qos.core.model import Level

__all__ = ["Task"]

_MANAGED_S_MAX = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a process is to be.

    Attributes:
        login: who to log in as.
        sends: whether it is the sender.
        way: `plugin`, `iq` or `raw`: how messages are sent and received.
        level: of `plugin`.
        steps: of the other two: requests for a message.
        plugins: the options of plugins to load, by plugin name.
        arrivals: the file descriptor of its end of a pipe; see ways.PluginSender.
        pause_s: between the end of a message and the next.
    """

    login: Login
    sends: bool
    way: str
    level: str = ""
    steps: int = 0
    plugins: dict[str, dict[str, Any]]
    arrivals: int | None = None
    pause_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As it is told to the process, on its stdin: there is a password in it."""
        ca_file = self.login.ca_file
        login = asdict(self.login) | {"ca_file": ca_file and str(ca_file)}
        return asdict(self) | {"login": login}

    @classmethod
    def from_json(cls, task: dict[str, Any]) -> Self:
        """The reverse."""
        login = task["login"]
        ca_file, backoff = login["ca_file"], Backoff(**login["backoff"])
        login |= {"ca_file": ca_file and Path(ca_file), "backoff": backoff}
        return cls(**task | {"login": Login(**login)})


async def _live(asked: child.Asked) -> None:
    task = Task.from_json(await asked())
    async with AccountSession(task.login, quiet=True) as session:
        client = session.client
        meter = Meter(client)
        for plugin, options in task.plugins.items():
            client.register_plugin(plugin, options)
        session.start()

        async def ready() -> None:
            await session.online.wait()
            if "xep_0198" in task.plugins:
                await _managed(client)

        await session.work(ready())
        child.say({"jid": client.boundjid.full})
        peer = (await asked())["peer"]
        if task.sends:
            await _send(_sender(task, client, peer), meter, task.pause_s, asked)
        else:
            await _receive(_receiver(task, client, peer), asked)


async def _managed(client: ClientXMPP) -> None:
    """Wait until the stream is managed (XEP-0198)."""
    management = client.plugin["xep_0198"]
    try:
        async with asyncio.timeout(_MANAGED_S_MAX):
            # Its event may have been before we could wait for it.
            while not management.enabled_out:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise CannotConnect("the server does not manage streams (XEP-0198)") from None


def _sender(task: Task, client: ClientXMPP, peer: str) -> Sender:
    if task.way == "plugin":
        level = Level(task.level)
        return PluginSender(client, peer, level=level, arrivals=task.arrivals)
    way = IqSender if task.way == "iq" else RawSender
    return way(client, peer, steps=task.steps)


def _receiver(task: Task, client: ClientXMPP, peer: str) -> Receiver:
    if task.way == "plugin":
        return PluginReceiver(client, arrivals=task.arrivals)
    way = IqReceiver if task.way == "iq" else RawReceiver
    return way(client, peer)


async def _send(
    sender: Sender, meter: Meter, pause_s: float, asked: child.Asked
) -> None:
    child.say({})
    try:
        while True:
            work = Work(**await asked())
            wire_bytes, stanzas = meter.wire_bytes, meter.stanzas
            times = await sender.send(work, pause_s=pause_s)
            wire_bytes = meter.wire_bytes - wire_bytes
            stanzas = meter.stanzas - stanzas
            latencies_s = sorted(times.latencies_s)
            child.say(
                {
                    "messages": len(latencies_s),
                    "seconds": times.seconds,
                    "p50_s": percentile(latencies_s, 0.5),
                    "p99_s": percentile(latencies_s, 0.99),
                    "p999_s": percentile(latencies_s, 0.999),
                    "wire_bytes": wire_bytes,
                    "stanzas": stanzas,
                }
            )
    finally:
        sender.close()


async def _receive(receiver: Receiver, asked: child.Asked) -> None:
    child.say({})
    while True:
        await asked()
        child.say({"taken": receiver.taken})


if __name__ == "__main__":
    child.run(_live)
