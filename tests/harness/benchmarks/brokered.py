"""A contender that has a broker, a sender and a receiver, each in a process of its own.

The brokers, and the making of a sample, are in the modules that build on this one.
"""

from __future__ import annotations

import contextlib
import importlib.util
from abc import ABC, abstractmethod
from array import array
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from benchmarks.group import HOW_TO_INSTALL
from benchmarks.sample import Sample, Work
from benchmarks.times import sample_of, unpack
from benchmarks.usage import Watch
from qos.extras import how_to_install
from qos.testing.ports import free_ports
from qos.testing.processes import PATIENCE_S, Child, NotInstalled, Process

__all__ = ["Brokered", "Program", "PythonProgram", "need_modules"]

_P = TypeVar("_P", bound=Process)


class Program(Protocol):
    """The program that the sender and the receiver run."""

    def check(self) -> None:
        """Check that it can run.

        Raises:
            NotInstalled: something that it needs is missing.
        """

    async def start(self, *, name: str, folder: Path) -> Child:
        """Start a process of it; see Child.start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonProgram:
    """A module of ours.

    Attributes:
        module: the module.
        needs: the package that it imports, besides ours.
        extra: the extra that installs it; empty: it is in the group `benchmarks`.
    """

    module: str
    needs: str
    extra: str = ""

    def check(self) -> None:
        """See Program."""
        need_modules(self.needs, extra=self.extra)

    async def start(self, *, name: str, folder: Path) -> Child:
        """See Program."""
        return await Child.start(self.module, name=name, folder=folder)


class Brokered(ABC):
    """See benchmarks.sample.Contender.

    Args:
        name: the name of its row.
        caveat: the guarantee that it does not give.
        program: of the sender and the receiver.
        receives: whether somebody receives; otherwise a message ends when the broker
            has confirmed it, and stays there.
    """

    #: Whether the sender notes as the end of a message when the broker has confirmed it.
    _confirms = False

    def __init__(
        self, name: str, caveat: str, *, program: Program, receives: bool = True
    ) -> None:
        self.name = name if receives else f"{name}, publish only"
        self.caveat = caveat
        self._program = program
        self._receives = receives
        self._started: list[Process] = []
        self._server: Process
        self._sender: Child
        self._receiver: Child

    @abstractmethod
    async def _start_server(self, folder: Path, port: int) -> Process:
        """Start the broker; `_keep` everything else that it needs."""

    @abstractmethod
    def _options(self, folder: Path) -> dict[str, Any]:
        """Return the options of both children for connecting, besides the port."""

    def _ended(self, sent: array[float], got: array[float]) -> array[float]:
        """Return when the messages ended.

        Args:
            sent: when they ended, according to the sender.
            got: when they ended, according to the receiver.
        """
        return got

    async def start(self, folder: Path) -> None:
        """See Contender."""
        self._program.check()
        (port,) = free_ports(1)
        self._server = self._keep(await self._start_server(folder, port))
        self._sender, self._receiver = [
            self._keep(await self._program.start(name=end, folder=folder))
            for end in ("sender", "receiver")
        ]
        await self._server.until_listening(port)
        options = self._options(folder)
        for each in (self._receiver, self._sender):
            await each.do("connect", port=port, **options)
        if self._receives:
            await self._receiver.do("receive")

    async def measure(self, work: Work) -> Sample:
        """See Contender."""
        processes = {
            "sender": self._sender,
            "receiver": self._receiver,
            "server": self._server,
        }
        with Watch({name: each.pid for name, each in processes.items()}) as used:
            sent = await self._sender.do(
                "send", patience_s=work.seconds + PATIENCE_S, **asdict(work)
            )
            given = unpack(sent["given"])
            confirmed = ended = unpack(sent["ended"])
            if self._receives:
                # No message may be missing, even if the sender does not ask.
                got = await self._receiver.do("received", messages=len(given))
                ended = self._ended(confirmed, unpack(got["ended"]))
        others = (
            {"confirmed_s": max(confirmed) - min(given)} if self._confirms else None
        )
        return sample_of(given, ended, used, others)

    async def stop(self) -> None:
        """See Contender."""
        started, self._started = self._started, []
        async with contextlib.AsyncExitStack() as stack:
            for each in started:
                stack.push_async_callback(each.kill)

    def _keep(self, process: _P) -> _P:
        """Remember a process, to end it later."""
        self._started.append(process)
        return process


def need_modules(*modules: str, extra: str = "") -> None:
    """Check that these modules can be imported, without importing them.

    Args:
        modules: their names.
        extra: the extra that installs them; empty: it is the group `benchmarks`.

    Raises:
        NotInstalled: a module is missing.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            how = how_to_install(extra) if extra else HOW_TO_INSTALL
            raise NotInstalled(f"there is no Python module {module}: {how}")
