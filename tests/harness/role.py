"""A process of a test or a campaign: its connection, and its task.

This module knows nothing of how it was started, and what kills it; see
`role_processes`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from qos.core.backoff import Backoff
from qos.stream.login import AccountSession, ComponentSession
from qos.stream.server import Component, Login
from qos.testing.xmpp_server import XmppServer

__all__ = ["Connect", "Role", "Say", "ended_by_signal", "open_log"]

# Enough for a machine under load.
_CONNECT_S_MAX = 30.0

_RECONNECT = Backoff(first_s=0.05, max_s=0.5)

#: Tells the parent: `ready`, when the process is in session and works, or `armed`.
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connect:
    """The connection and its account; it is made again whenever it is lost.

    Attributes:
        jid: of the account, full, or of the component.
        password: of it.
        host: of the server.
        port: of the server.
        ca_file: the CA of the server's certificate; '': the connection is not
            encrypted.
    """

    jid: str
    password: str
    host: str
    port: int
    ca_file: str = ""

    @classmethod
    def of_account(
        cls, server: XmppServer, name: str, *, port: int = 0, tls: bool = False
    ) -> Self:
        """The connection of a user of the server, with a resource.

        Args:
            server: the server.
            name: `user/resource`.
            port: of a proxy; 0: the server's own.
            tls: whether to insist on it.
        """
        user, _, resource = name.partition("/")
        return cls(
            jid=f"{user}@{server.domain}/{resource}",
            password=server.accounts[user],
            host=server.address,
            port=port or server.c2s_port,
            ca_file=str(server.ca_file) if tls else "",
        )

    @classmethod
    def of_component(cls, server: XmppServer, jid: str, *, port: int = 0) -> Self:
        """The connection of a component of the server; a port is that of a proxy."""
        return cls(
            jid=jid,
            password=server.components[jid],
            host=server.address,
            port=port or server.component_port,
        )

    def as_account(self, *, resumes: bool = False) -> AccountSession:
        """A session, not started yet; one that resumes has XEP-0198."""
        login = Login(
            host=self.host,
            port=self.port,
            connect_timeout_s=_CONNECT_S_MAX,
            backoff=_RECONNECT,
            jid=self.jid,
            password=self.password,
            tls="starttls" if self.ca_file else "off",
            ca_file=Path(self.ca_file) if self.ca_file else None,
        )
        session = AccountSession(login)
        if resumes:
            session.client.register_plugin("xep_0198")
        return session

    def as_component(self) -> ComponentSession:
        """A component's session, not started yet."""
        component = Component(
            host=self.host,
            port=self.port,
            connect_timeout_s=_CONNECT_S_MAX,
            backoff=_RECONNECT,
            jid=self.jid,
            secret=self.password,
        )
        return ComponentSession(component)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """The task of a process.

    Attributes:
        connect: its connection.
    """

    connect: Connect

    async def live(self, say: Say) -> None:
        """Do the task, and report when it has begun."""
        raise NotImplementedError


def ended_by_signal() -> asyncio.Event:
    """An event that is set by SIGTERM."""
    ends = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ends.set)
    return ends


def open_log(path: str) -> int:
    """A file that is only appended to."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
