"""The server between the two ends: one that is started here, or one of the user's."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from benchmarks.sample import BenchFailed
from qos.core.backoff import Backoff
from qos.stream.server import Component, Login
from qos.testing.processes import Child, find_program
from qos.testing.prosody import Prosody, ProsodyError, mutual
from qos.testing.server import LoopbackServer

__all__ = ["EmbeddedServer", "NamedServer", "ProsodyServer", "Server"]

_SENDER, _RECEIVER = "sender", "receiver"

_CONNECT_S_MAX = 20.0


class Server(Protocol):
    """A server with an account for each end.

    Attributes:
        name: for people.
        version: its version; None: not known.
        pid: the id of its process; None: it is not ours.
        sender: an account, without a resource.
        receiver: another account, without a resource.
        components: the components that can log in, by domain, once started.
    """

    name: str
    version: str | None
    pid: int | None
    sender: Login
    receiver: Login
    components: Mapping[str, Component]

    async def start(self, folder: Path) -> None:
        """Start the server, with its files in this folder, which is empty.

        Raises:
            NotInstalled: it is not installed.
            BenchFailed: it does not start.
        """

    async def stop(self) -> None:
        """End the server; harmless if it was not started."""


class NamedServer:
    """A server of the user; nothing is started.

    Args:
        sender: an account there.
        receiver: another account, or the same.
    """

    version: str | None = None
    pid: int | None = None

    def __init__(self, sender: Login, receiver: Login) -> None:
        self.components: Mapping[str, Component] = {}
        self.name = sender.host or sender.domain
        self.sender, self.receiver = _bare(sender), _bare(receiver)

    async def start(self, folder: Path) -> None:
        """See Server."""

    async def stop(self) -> None:
        """See Server."""


class EmbeddedServer:
    """The server of `qos.testing`, in a process of its own.

    Args:
        components: the domains of the components that can log in.
    """

    name = "the embedded server"
    version: str | None = None

    def __init__(self, *, components: Sequence[str] = ()) -> None:
        self.pid: int | None = None
        self.components: Mapping[str, Component] = {}
        self._secrets = _new_secrets(components)
        self._passwords = _new_passwords()
        self._child: Child | None = None

    async def start(self, folder: Path) -> None:
        """See Server."""
        self._child = await Child.start(
            "benchmarks.embedded", name=self.name, folder=folder
        )
        answer = await self._child.do(
            "serve", accounts=self._passwords, components=self._secrets
        )
        self.pid = self._child.pid
        host, domain, port = LoopbackServer.host, LoopbackServer.domain, answer["port"]
        self.components = _components(
            self._secrets, host=host, port=answer["component_port"]
        )
        self.sender, self.receiver = (
            _login(f"{user}@{domain}", password, host=host, port=port)
            for user, password in self._passwords.items()
        )

    async def stop(self) -> None:
        """See Server."""
        if self._child is not None:
            await self._child.end()


class ProsodyServer:
    """A Prosody on loopback.

    Args:
        nagle: leave Nagle's algorithm on, as Debian ships it.
        tls: offer STARTTLS too; see `ca_file`.
        contacts: make each of the two accounts a contact of the other.
        components: the domains of the components that can log in.

    Attributes:
        ca_file: with `tls`, the certificate to trust, once started.
    """

    def __init__(
        self,
        *,
        nagle: bool = False,
        tls: bool = False,
        contacts: bool = False,
        components: Sequence[str] = (),
    ) -> None:
        self.name = "Prosody (Nagle on)" if nagle else "Prosody"
        self.version: str | None = None
        self.pid: int | None = None
        self.ca_file: Path | None = None
        self.components: Mapping[str, Component] = {}
        self._secrets = _new_secrets(components)
        self._nagle = nagle
        self._tls = tls
        self._rosters = mutual((_SENDER, _RECEIVER)) if contacts else {}
        self._prosody: Prosody | None = None

    async def start(self, folder: Path) -> None:
        """See Server."""
        find_program("prosody", "prosody")
        passwords = _new_passwords()
        server = Prosody(
            folder,
            accounts=passwords,
            rosters=self._rosters,
            components=self._secrets,
            tls=self._tls,
            nagle=self._nagle,
        )
        self._prosody = server
        try:
            await server.start()
        except ProsodyError as error:
            raise BenchFailed(" | ".join(str(error).splitlines())) from None
        self.pid = server.pid
        self.ca_file = server.ca_file
        self.components = _components(
            self._secrets, host=server.address, port=server.component_port
        )
        found = re.search(r"Prosody version (\S+)", server.log)
        self.version = found[1] if found else None
        self.sender, self.receiver = (
            _login(
                f"{user}@{server.domain}",
                password,
                host=server.address,
                port=server.c2s_port,
            )
            for user, password in passwords.items()
        )

    async def stop(self) -> None:
        """See Server."""
        if self._prosody is not None:
            await self._prosody.kill()


def _new_passwords() -> dict[str, str]:
    return {user: secrets.token_hex(16) for user in (_SENDER, _RECEIVER)}


def _new_secrets(domains: Sequence[str]) -> dict[str, str]:
    return {domain: secrets.token_hex(16) for domain in domains}


def _components(
    secret_of: Mapping[str, str], *, host: str, port: int
) -> dict[str, Component]:
    return {
        domain: Component(jid=domain, secret=secret, host=host, port=port)
        for domain, secret in secret_of.items()
    }


def _login(jid: str, password: str, *, host: str, port: int) -> Login:
    return Login(
        jid=jid,
        password=password,
        host=host,
        port=port,
        tls="off",
        ca_file=None,
        connect_timeout_s=_CONNECT_S_MAX,
        backoff=Backoff(),
    )


def _bare(login: Login) -> Login:
    return replace(login, jid=login.jid.partition("/")[0])
