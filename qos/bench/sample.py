"""A sample: what is measured, and its units. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from qos.testing.processes import ProcessFailed

__all__ = ["BenchFailed", "Contender", "Sample", "Work"]


class BenchFailed(ProcessFailed):
    """Nothing can be measured; the text says why, in one line."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one sample.

    Attributes:
        window: messages under way at once.
        payload_bytes: of each message.
        seconds: how long to go on, roughly.
    """

    window: int
    payload_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The result of one sample.

    Attributes:
        messages: that came to their end.
        seconds: from the first one given to the end of the last.
        p50_s: half of the messages took at most so long, from being given to the
            library to their end; `p99_s` and `p999_s` likewise.
        cpu_s: processor time meanwhile, by process: `sender`, `receiver`, `server`; of our
            queues also `service`.
        rss_bytes: memory at the end, by process.
        wire_bytes: sent and received by the sender, without TLS and TCP; None: not
            known. `stanzas` likewise.
    """

    messages: int
    seconds: float
    p50_s: float
    p99_s: float
    p999_s: float
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    rss_bytes: Mapping[str, int] = field(default_factory=dict)
    wire_bytes: int | None = None
    stanzas: int | None = None

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds


class Contender(Protocol):
    """Something that brings messages from one process to another.

    Attributes:
        name: of its row.
        caveat: what it does not guarantee; empty if nothing is to be said.
    """

    name: str
    caveat: str

    async def start(self, folder: Path) -> None:
        """Start its processes, with their files in this folder, which is empty.

        Raises:
            NotInstalled: something is not installed.
            BenchFailed: something does not start.
        """

    async def measure(self, work: Work) -> Sample:
        """Do it once; may be asked for again and again.

        Raises:
            BenchFailed: it came to nothing, or to something else.
        """

    async def stop(self) -> None:
        """End its processes; no harm if it was not started, or only in part."""
