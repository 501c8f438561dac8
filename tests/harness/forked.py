"""Processes forked from one that has already imported everything they need.

A new interpreter takes half a second of a busy machine for that, and the tests start
hundreds. Tests that depend on how a process is started use a real start; see
`qos.testing.processes`. All forks die with the process that has started them, even when
that is killed.
"""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import NoReturn, Self

from parents import die_with_parent

_COMMANDS = ("send", "listen", "outbox", "inbox", "queues", "worker")
_OF_QUEUE = ("queue_serve", "queue_publish", "queue_verbs")
#: What slixmpp imports when it connects.
_OF_SLIXMPP = (
    *("features.feature_mechanisms", "features.feature_bind"),
    *("features.feature_starttls", "plugins.xep_0199"),
)

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "mortal_server",
        *(f"qos.cli.{name}" for name in ("entry", *_COMMANDS, *_OF_QUEUE)),
        *(f"slixmpp.{name}" for name in _OF_SLIXMPP),
        "role_processes",
    ]
)


def _be(
    function: Callable[..., int], arguments: Sequence[object], *streams: Connection
) -> NoReturn:
    die_with_parent()
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, closefd=False) for number, mode in enumerate("rww")
    )
    # For tests of stderr.
    warnings.simplefilter("default")
    sys.exit(function(*arguments))


def command(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run `xmpp-qos` with these words."""
    from qos.cli import main

    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["xmpp-qos", *words]
    return main()


class Forked:
    """A process with the interface of asyncio.subprocess.Process, and three pipes.

    Args:
        function: runs in the process, and returns its status.
        arguments: for the function.
    """

    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    _reading: asyncio.ReadTransport

    def __init__(self, function: Callable[..., int], *arguments: object) -> None:
        loop = asyncio.get_running_loop()
        its_in, self._in = _FORKS.Pipe(duplex=False)
        self._out, its_out = _FORKS.Pipe(duplex=False)
        self._err, its_err = _FORKS.Pipe(duplex=False)
        its = (its_in, its_out, its_err)
        self._process = _FORKS.Process(
            target=_be, args=(function, arguments, *its), daemon=True
        )
        self._process.start()
        for stream in its:
            stream.close()
        self._ended: asyncio.Future[int] = loop.create_future()
        loop.add_reader(self._process.sentinel, self._end)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        assert self._process.exitcode is not None
        self._ended.set_result(self._process.exitcode)

    @classmethod
    async def start(cls, function: Callable[..., int], *arguments: object) -> Self:
        """Start it."""
        forked = cls(function, *arguments)
        loop = asyncio.get_running_loop()
        forked.stdout, forked._reading = await _reader(forked._out)
        forked.stderr, _ = await _reader(forked._err)
        writing, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), forked._in
        )
        forked.stdin = asyncio.StreamWriter(writing, protocol, None, loop)
        return forked

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._ended.result() if self._ended.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        if self._ended.done():
            raise ProcessLookupError
        os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close_stdout(self) -> None:
        """Stop reading its stdout, and let the command notice."""
        self._reading.close()

    async def communicate(self, input_: bytes) -> tuple[bytes, bytes]:
        """Write the rest of its stdin, and wait for its end."""
        _, out, err = await asyncio.gather(
            self._feed(input_), self.stdout.read(), self.stderr.read()
        )
        await self.wait()
        return out, err

    async def _feed(self, input_: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if input_:
                self.stdin.write(input_)
                await self.stdin.drain()
            self.stdin.close()
            await self.stdin.wait_closed()


async def _reader(
    end: Connection,
) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), end
    )
    return reader, transport
