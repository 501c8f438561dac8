"""A sample: its figures and their units. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from qos.testing.processes import ProcessFailed

__all__ = ["BenchFailed", "Contender", "Sample", "Work"]


class BenchFailed(ProcessFailed):
    """A measurement is not possible; the text gives the reason, in one line."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one sample.

    Attributes:
        window: the number of messages in flight.
        payload_bytes: the payload size of each message.
        seconds: the approximate duration.
    """

    window: int
    payload_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The result of one sample.

    Attributes:
        messages: the number of messages that ended.
        seconds: from the start of the first message to the end of the last.
        p50_s: the median of the times from giving a message to the library to its end;
            `p99_s` and `p999_s` are the other percentiles.
        cpu_s: the processor time in this time, by process: `sender`, `receiver`,
            `server`; our queues also have `service`.
        rss_bytes: the memory at the end, by process.
        wire_bytes: bytes sent and received by the sender, without TLS and TCP; None:
            not known. `stanzas` likewise.
        confirmed_s: from the start of the first message until the broker of a queue had
            confirmed the last one to its publisher; None: nobody confirms.
        others_share: the part of the machine's processor time that all else has used
            meanwhile; None: not known.
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
    confirmed_s: float | None = None
    others_share: float | None = None

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.seconds


class Contender(Protocol):
    """A system that brings messages from one process to another.

    Attributes:
        name: the name of its row.
        caveat: the guarantee that it does not give; empty if there is nothing to note.
    """

    name: str
    caveat: str

    async def start(self, folder: Path) -> None:
        """Start its processes, with their files in this folder, which is empty.

        Raises:
            NotInstalled: a program or library is not installed.
            BenchFailed: a process does not start.
        """

    async def measure(self, work: Work) -> Sample:
        """Do the work once; may be called repeatedly.

        Raises:
            BenchFailed: the work failed, or its result is wrong.
        """

    async def stop(self) -> None:
        """End its processes; harmless if it was not started, or only in part."""
