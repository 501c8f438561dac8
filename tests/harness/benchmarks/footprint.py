"""The footprint: the plugin's cost to an application besides its messages.

The measurements are in `footprint_import`, `footprint_stanzas`, `footprint_outstanding`
and `footprint_flat`; this module has their common parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Self, TypeAlias

from benchmarks.node import Task
from benchmarks.report import aligned
from benchmarks.rows import with_resource
from benchmarks.sample import BenchFailed
from benchmarks.servers import Server
from benchmarks.usage import Usage, usage_of
from qos.bench.messages import NO_LIMITS
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

#: The unit of the targets.
MB = 10**6

#: Even on a slow machine, a message takes less than this.
_MESSAGE_S_MAX = 0.02

#: Gets a description of the present step.
Progress: TypeAlias = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The extent of the measurements.

    Attributes:
        repeat: the number of interpreters for `import`, of sets of processes for
            `stanzas`, and of turns for `outstanding`.
        messages: the number of outstanding messages.
        flat_messages: the number of messages sent by `flat`.
        seconds: the time to measure a rate.
        payload_bytes: the payload size of an outstanding message.
        pairs: the number of turns of each set of processes, for each kind of stanza.
        stanzas: the number of stanzas requested in such a turn.
        warm_up: the number of messages in `flat` before the first that counts.
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
    """A figure, and the project's target for it.

    Attributes:
        what: its name, in words.
        value: the figure.
        bound: the largest permitted value, or the smallest.
        unit: of both; may be empty.
        least: whether the bound is the smallest permitted value.
    """

    what: str
    value: float
    bound: float
    unit: str = ""
    least: bool = False

    @property
    def met(self) -> bool:
        """Whether the target is met; NaN never meets it."""
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
    """The spread of values: the middle half of them is from `low` to `high`."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the spread of these values, at least one."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, _, high = quantiles(values, n=4, method="inclusive")
        return cls(median(values), low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One measurement.

    Attributes:
        title: the title of its table.
        head: the heading of each column, in two lines.
        rows: the rows of the table, as text.
        targets: the figures that have a target.
        figures: all figures, for JSON.
    """

    title: str
    head: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]
    targets: Sequence[Target]
    figures: Mapping[str, object] = field(default_factory=dict)

    def table(self) -> str:
        """The table, for people."""
        lines = aligned([*zip(*self.head, strict=True), *self.rows])
        return "\n".join((self.title, *lines, *map(str, self.targets)))

    def plain(self) -> dict[str, object]:
        """The figures, for JSON."""
        targets = [asdict(each) | {"met": each.met} for each in self.targets]
        return {**self.figures, "targets": targets}


class End:
    """A process that is logged in, and executes commands (`footprint_node`).

    Attributes:
        jid: its full JID.
        loaded_s: the time to load its plugins, which opens their store, in seconds.
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
        """See Child.do.

        The time limit follows from the number of messages or seconds.
        """
        patience_s = PATIENCE_S + options.get("seconds", 0.0)
        patience_s += options.get("messages", 0) * _MESSAGE_S_MAX
        return await self._child.do(command, patience_s=patience_s, **options)

    async def stop(self) -> None:
        """Log out and end the process; harmless if it has ended."""
        await self._child.end()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def used(self) -> Usage:
        """The resources that it has used so far.

        Raises:
            BenchFailed: they cannot be read here.
        """
        used = usage_of(self.pid)
        if used is None:
            raise BenchFailed("there is no /proc that tells what a process uses")
        return used


class Place:
    """A place for ends: a server, and a folder for their files, until it is left."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Begin the context; nothing else happens here."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all processes."""
        await self._stack.aclose()

    async def new_end(self, name: str) -> End:
        """Start a process; its log has the same name."""
        child = await Child.start(
            "benchmarks.footprint_node", name=name, folder=self._folder
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
        """The task of an end.

        Args:
            sends: whether it sends to another end with the plugin.
            plugins: the options of the plugins to load, by their names.
            account: `sender` or `receiver`; chosen by `sends` if it is empty.
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
        """The domain of the server."""
        return self._server.sender.domain

    def plugin(self, store: str, **options: Any) -> dict[str, dict[str, Any]]:
        """The plugin with its default options, but without limits on messages.

        Args:
            store: the URL of its store.
            options: further options.
        """
        limits = {"outbox_messages_max": 10**9, "outbox_bytes_max": 10**15}
        trust = [self._server.sender.jid]
        known = {"store": store, "trust": trust, **NO_LIMITS, **limits}
        return {"xep_qos": {**known, **options}}


def bytes_below(*paths: Path) -> int:
    """Return the size of these files, and of all files in these folders, in bytes."""
    files = [
        file
        for path in paths
        for file in ([path] if path.is_file() else path.rglob("*"))
    ]
    return sum(file.stat().st_size for file in files if file.is_file())
