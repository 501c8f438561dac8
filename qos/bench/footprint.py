"""The footprint: the plugin's cost to an application beside its messages.

What is measured is in `footprint_import`, `footprint_stanzas`, `footprint_outstanding`
and `footprint_flat`; here is what they share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Self, TypeAlias

from qos.bench.node import Task
from qos.bench.report import aligned
from qos.bench.rows import NO_LIMITS, with_resource
from qos.bench.sample import BenchFailed
from qos.bench.servers import Server
from qos.bench.usage import Usage, usage_of
from qos.core.message.model import Level
from qos.testing.processes import PATIENCE_S, Child

__all__ = [
    "MB",
    "End",
    "Part",
    "Place",
    "Plan",
    "Progress",
    "Spread",
    "Target",
    "bytes_below",
]

#: As the targets have it.
MB = 10**6

#: No machine is so slow that one message takes longer than this.
_MESSAGE_S_MAX = 0.02

#: Is told what is being done.
Progress: TypeAlias = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The extent of the measurements.

    Attributes:
        repeat: interpreters for `import`, sets of processes for `stanzas`, and turns for
            `outstanding`.
        messages: outstanding ones.
        flat_messages: sent by `flat`.
        seconds: for a rate.
        payload_bytes: of an outstanding message.
        pairs: turns of each set of processes, for each kind of stanza.
        stanzas: asked for in such a turn.
        warm_up: messages before the first that counts in `flat`.
    """

    repeat: int = 5
    messages: int = 100_000
    flat_messages: int = 100_000
    seconds: float = 2.0
    payload_bytes: int = 1000
    pairs: int = 10
    stanzas: int = 200
    warm_up: int = 1000


@dataclass(frozen=True, slots=True)
class Target:
    """A figure, and what the project has set itself for it.

    Attributes:
        what: it is, in words.
        value: the figure.
        bound: it is to be at most this, or at least.
        unit: of both; may be empty.
        least: whether the bound is the least.
    """

    what: str
    value: float
    bound: float
    unit: str = ""
    least: bool = False

    @property
    def met(self) -> bool:
        """Whether it is as it should be; what is not a number is not."""
        if self.least:
            return self.value >= self.bound
        return self.value <= self.bound

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        wanted = f"wanted: at {'least' if self.least else 'most'} {self.bound:g}{unit}"
        missed = "" if self.met else "; missed"
        return f"{self.what}: {self.value:,.2f}{unit} ({wanted}{missed})."


@dataclass(frozen=True, slots=True)
class Spread:
    """A spread of values: the half of them in the middle is from `low` to `high`."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return that of these, of which there is one at least."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(median(values), low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One measurement.

    Attributes:
        title: of its table.
        head: what stands above each column, in two lines.
        rows: of the table, as text.
        targets: what is compared with what is wanted.
        figures: everything, for JSON.
    """

    title: str
    head: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    targets: Sequence[Target]
    figures: Mapping[str, object] = field(default_factory=dict)

    def table(self) -> str:
        """For people."""
        lines = aligned([*zip(*self.head, strict=True), *self.rows])
        return "\n".join((self.title, *lines, *map(str, self.targets)))

    def plain(self) -> dict[str, object]:
        """For JSON."""
        targets = [asdict(each) | {"met": each.met} for each in self.targets]
        return {**self.figures, "targets": targets}


class End:
    """A process that is logged in, and does what it is told (`footprint_node`).

    Attributes:
        jid: as whom.
        loaded_s: how long it took to load its plugins, which opens their store.
    """

    def __init__(self, child: Child) -> None:
        self.jid = ""
        self.loaded_s = 0.0
        self._child = child

    async def connect(self, task: Task) -> None:
        """Log in; see node.Node.connect."""
        answer = await self._child.do("connect", task=task.to_json())
        self.jid, self.loaded_s = answer["jid"], answer["loaded_s"]

    async def do(self, command: str, **options: Any) -> dict[str, Any]:
        """See Child.do: it has time for as many messages or seconds as it is told."""
        patience_s = PATIENCE_S + options.get("seconds", 0.0)
        patience_s += options.get("messages", 0) * _MESSAGE_S_MAX
        return await self._child.do(command, patience_s=patience_s, **options)

    async def stop(self) -> None:
        """Log out and end; no harm if it has."""
        await self._child.end()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def used(self) -> Usage:
        """What it has used so far.

        Raises:
            BenchFailed: nobody can tell here.
        """
        used = usage_of(self.pid)
        if used is None:
            raise BenchFailed("there is no /proc that tells what a process uses")
        return used


class Place:
    """A place where ends live: at a server, with their files in a folder, until it is left."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Nothing but the beginning of the context."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all of them."""
        await self._stack.aclose()

    async def new_end(self, name: str) -> End:
        """Start a process; this is its log's name, too."""
        child = await Child.start(
            "qos.bench.footprint_node", name=name, folder=self._folder
        )
        end = End(child)
        self._stack.push_async_callback(end.stop)
        return end

    def task(
        self,
        *,
        sends: bool,
        plugins: Mapping[str, dict[str, Any]],
        account: str = "",
        pause_s: float = 0.0,
    ) -> Task:
        """What an end is to be.

        Args:
            sends: whether it sends to another with the plugin.
            plugins: the options of those to load, by their names.
            account: `sender` or `receiver`; as `sends` says if it is empty.
            pause_s: see Task.
        """
        account = account or ("sender" if sends else "receiver")
        server = self._server
        login = server.sender if account == "sender" else server.receiver
        return Task(
            login=with_resource(login),
            sends=sends,
            way="plugin",
            level=Level.ASSURED.value,
            plugins=dict(plugins),
            pause_s=pause_s,
        )

    @property
    def domain(self) -> str:
        """Of the server."""
        return self._server.sender.domain

    def plugin(self, store: str, **options: Any) -> dict[str, dict[str, Any]]:
        """The plugin as shipped, but that any number can be sent and held.

        Args:
            store: its URL.
            options: more of them.
        """
        limits = {"outbox_messages_max": 10**9, "outbox_bytes_max": 10**15}
        trust = [self._server.sender.jid]
        known = {"store": store, "trust": trust, **NO_LIMITS, **limits}
        return {"xep_qos": {**known, **options}}


def bytes_below(*paths: Path) -> int:
    """Return the size of these files, and of all files in these folders."""
    files = [
        file
        for path in paths
        for file in ([path] if path.is_file() else path.rglob("*"))
    ]
    return sum(file.stat().st_size for file in files if file.is_file())
