"""A real XMPP server for tests, in a folder, on ports and with a process of its own.

This module starts, stops and kills a server, and has what servers of this kind have in
common. It knows nothing of a server's configuration, of clients and of pytest: a script
can use it too. Linux only.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import signal
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Required, Self, TypedDict, Unpack

from qos.testing.ports import ADDRESS, free_ports
from qos.testing.processes import NotInstalled, Process, completed, find_program

__all__ = ["Roster", "ServerError", "ServerOptions", "XmppServer", "mutual"]

DOMAIN = "localhost"

#: What it writes to stdout and stderr is in the log of this name.
_CONSOLE = "console"

_LOG_LINES_SHOWN = 20

Roster = Mapping[str, str]


class ServerError(RuntimeError):
    """A server is not installed, did not start, or not as configured."""


class ServerOptions(TypedDict, total=False):
    """The options of a server.

    Attributes:
        accounts: Passwords by user name (the part before the @).
        rosters: For each user the subscription (`both`, `to`, `from`, `none`) by
            contact: a user name of this server or a bare JID. Nothing is mirrored:
            list both sides, for example with `mutual`.
        components: Secrets of XEP-0114 components by JID.
        smacks: Whether to offer XEP-0198.
        tls: Whether to offer STARTTLS on `c2s_port` and direct TLS on `tls_port`, with
            a certificate that is signed by `ca_file`. Plain logins stay possible.
        stanza_bytes_max: The longest stanza accepted from a client or component; None:
            the server's default.
    """

    accounts: Required[Mapping[str, str]]
    rosters: Mapping[str, Roster]
    components: Mapping[str, str]
    smacks: bool
    tls: bool
    stanza_bytes_max: int | None


class XmppServer(abc.ABC):
    """One server on loopback, host `localhost`, as a child process.

    Use it as an async context manager, or call `start` and `stop`. All attributes are
    known from the beginning, and the ports never change.

    Args:
        folder: An empty folder for this server alone.
        options: See `ServerOptions`.
    """

    #: The name for people.
    name: ClassVar[str]
    error: ClassVar[type[ServerError]] = ServerError
    #: Enough for a machine under load.
    start_s_max: ClassVar[float] = 20.0

    address = ADDRESS
    domain = DOMAIN

    def __init__(self, folder: Path, **options: Unpack[ServerOptions]) -> None:
        self.folder = folder = folder.absolute()
        self.accounts = dict(options["accounts"])
        rosters = options.get("rosters", {})
        self.rosters = {user: dict(roster) for user, roster in rosters.items()}
        self.components = dict(options.get("components", {}))
        self.smacks = options.get("smacks", True)
        self.stanza_bytes_max = options.get("stanza_bytes_max")
        self.c2s_port, self.component_port, free_port = free_ports(3)
        tls = options.get("tls", False)
        self.tls_port = free_port if tls else None
        self.ca_file = folder / "localhost.crt" if tls else None
        self._console_file = folder / f"{_CONSOLE}.log"
        self._process: Process | None = None

    @property
    def running(self) -> bool:
        """Whether there is a process, healthy or not."""
        return self._process is not None and self._process.running

    @property
    def pid(self) -> int:
        """The process id; only while it is running."""
        assert self._process is not None
        assert self.running
        return self._process.pid

    @property
    def log(self) -> str:
        """Everything written to its log and console since the first start."""
        return "".join(file.read_text() for file in self._log_files() if file.exists())

    async def start(self) -> None:
        """Start, with the data of the last time; returns when logins work.

        Raises:
            ServerError: The server did not start; has the end of the log.
        """
        assert not self.running
        command = self._command()
        if not self._config_file.exists():
            await self._make_certificate()
            self._write_files()
        log_seen = len(self.log)
        try:
            self._process = await Process.start(
                *command,
                folder=self.folder,
                environment=self._environment(),
                name=_CONSOLE,
            )
        except NotInstalled as error:
            raise self.error(str(error)) from None
        try:
            async with asyncio.timeout(self.start_s_max):
                await self._ready(log_seen)
        except TimeoutError:
            await self.kill()
            text = f"{self.name} was not ready within {self.start_s_max:g} s"
            raise self._error(text) from None
        except BaseException:
            await self.kill()
            raise

    async def stop(self) -> None:
        """Shut down normally, which takes a second if clients are still connected.

        Most clients get `system-shutdown`: Prosody now and then closes a connection
        without writing the rest of its data. Harmless if the server is not running.
        """
        if self._process is not None:
            await self._process.end()

    async def kill(self) -> None:
        """End the server by SIGKILL. Harmless if it is not running."""
        if self._process is not None:
            await self._process.kill()

    def send_signal(self, number: signal.Signals) -> None:
        """Send the server a signal, for example to pause it."""
        assert self._process is not None
        self._process.send_signal(number)

    async def restart(self) -> None:
        """Stop, and start with the same ports and data; sessions are lost."""
        await self.stop()
        await self.start()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The data go with the folder, and a client that is still connected must not
        # delay the end of the test.
        await self.kill()

    # -- to be defined for each kind of server ---------------------------------

    @property
    @abc.abstractmethod
    def _config_file(self) -> Path:
        """The configuration file; it exists when everything has been written."""

    @abc.abstractmethod
    def _command(self) -> tuple[str, ...]:
        """The command that runs the server.

        Raises:
            ServerError: It is not installed.
        """

    @abc.abstractmethod
    def _write_files(self) -> None:
        """Write the configuration, before the first start."""

    @abc.abstractmethod
    def _is_up(self, log: str) -> bool:
        """Whether the log since the start says that the ports are open and its own.

        Raises:
            ServerError: Another process has a port.
        """

    def _environment(self) -> Mapping[str, str]:
        """Environment variables for it, beyond those of this process."""
        return {}

    def _log_files(self) -> tuple[Path, ...]:
        """Its log files."""
        return (self._console_file,)

    # ----------------------------------------------------------------------

    async def _ready(self, log_seen: int) -> None:
        """Wait for its ports and for stream features.

        An open port alone proves nothing.
        """
        assert self._process is not None
        ready = False
        while not ready:
            if self._is_up(self.log[log_seen:]):
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    await self._read_features()
                    ready = True
            if not self._process.running:
                text = f"{self.name} ended with status {self._process.status}"
                raise self._error(text)
            await asyncio.sleep(0.005)

    async def _read_features(self) -> None:
        reader, writer = await asyncio.open_connection(self.address, self.c2s_port)
        try:
            writer.write(
                f"<stream:stream to='{self.domain}' version='1.0' xmlns='jabber:client'"
                " xmlns:stream='http://etherx.jabber.org/streams'>".encode()
            )
            await reader.readuntil(b"</stream:features>")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _error(self, text: str) -> ServerError:
        """An error that shows the end of the log."""
        lines = self.log.splitlines()[-_LOG_LINES_SHOWN:]
        return self.error("\n".join([f"{text}; the end of its log:", *lines]))

    async def _make_certificate(self) -> None:
        if self.ca_file is None:
            return
        command = (
            *("req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"),
            *("-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            # Python 3.13 and later refuse a certificate authority without this
            # extension.
            *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
            *("-keyout", str(self.ca_file.with_suffix(".key"))),
            *("-out", str(self.ca_file)),
        )
        try:
            openssl = await completed(find_program("openssl", "openssl"), *command)
        except NotInstalled as error:
            raise self.error(str(error)) from None
        if openssl.status:
            raise self.error(f"openssl made no certificate: {openssl.err}")


def mutual(*pairs: tuple[str, str]) -> dict[str, dict[str, str]]:
    """Rosters in which the users of each pair have each other, subscribed `both`."""
    rosters: dict[str, dict[str, str]] = {}
    for user, contact in pairs:
        rosters.setdefault(user, {})[contact] = "both"
        rosters.setdefault(contact, {})[user] = "both"
    return rosters
