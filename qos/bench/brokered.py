"""A contender that has a broker, a sender and a receiver, each in a process of its own.

The brokers, and the making of a sample, are in the modules that build on this one.
"""

from __future__ import annotations

import contextlib
import importlib.util
from abc import ABC, abstractmethod
from array import array
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from qos.bench.sample import Sample, Work
from qos.bench.times import sample_of, unpack
from qos.bench.usage import Watch
from qos.testing.ports import free_ports
from qos.testing.processes import PATIENCE_S, Child, NotInstalled, Process

__all__ = ["Brokered"]

_P = TypeVar("_P", bound=Process)


class Brokered(ABC):
    """See qos.bench.sample.Contender.

    Args:
        name: the name of its row.
        caveat: the guarantee that it does not give.
        child: the module that the sender and the receiver run.
        module: the package that this module imports, besides ours.
    """

    def __init__(self, name: str, caveat: str, *, child: str, module: str) -> None:
        self.name = name
        self.caveat = caveat
        self._child = child
        self._module = module
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
        need_modules(self._module)
        (port,) = free_ports(1)
        self._server = self._keep(await self._start_server(folder, port))
        self._sender, self._receiver = [
            self._keep(await Child.start(self._child, name=end, folder=folder))
            for end in ("sender", "receiver")
        ]
        await self._server.until_listening(port)
        options = self._options(folder)
        for each in (self._receiver, self._sender):
            await each.do("connect", port=port, **options)
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
            # No message may be missing, even if the sender does not ask.
            got = await self._receiver.do("received", messages=len(given))
        ended = self._ended(unpack(sent["ended"]), unpack(got["ended"]))
        return sample_of(given, ended, used)

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


def need_modules(*modules: str) -> None:
    """Check that these modules can be imported, without importing them.

    Raises:
        NotInstalled: a module is missing.
    """
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise NotInstalled(
                f"there is no Python module {module}: pip install 'xmpp-qos[bench]'"
            )
