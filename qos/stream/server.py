"""The settings of a session: server, account, and security."""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from qos.core.backoff import Backoff
from qos.core.strings import domain_of, user_of

__all__ = [
    "ALPN",
    "PING_INTERVAL_S",
    "PORT_COMPONENT",
    "PORT_DIRECT",
    "PORT_STARTTLS",
    "TLS_MODES",
    "Component",
    "Login",
    "Server",
    "is_loopback",
]

#: The ports of RFC 6120 §14.7, and of direct TLS. XEP-0368 leaves the latter to DNS;
#: servers use this one.
PORT_STARTTLS: Final = 5222
PORT_DIRECT: Final = 5223

#: XEP-0114 names no port; servers listen here for components.
PORT_COMPONENT: Final = 5347

TLS_MODES: Final = ("starttls", "direct", "off")

#: The name of XMPP for clients in TLS (XEP-0368 §3).
ALPN: Final = "xmpp-client"

#: The usual seconds without bytes in one direction before a ping. haproxy ends a connection
#: in which one end has sent nothing for 50 s, and nginx after 60 s.
PING_INTERVAL_S: Final = 40.0

_BACKOFF = Backoff()


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The address of a server, and the times to wait for it.

    Attributes:
        host: the server; None: from DNS.
        port: the port of the server.
        connect_timeout_s: the time for the first connection, and for each attempt, in
            seconds; math.inf: try until there is a connection.
        backoff: the delays between attempts to connect.
        ping_interval_s: a ping (XEP-0199) is sent when nothing has come, or nothing was
            written, for this time, in seconds.
        ping_timeout_s: a server counts as lost when nothing has moved for this time
            after the ping, in either direction, in seconds.
    """

    host: str | None
    port: int
    connect_timeout_s: float = 30.0
    backoff: Backoff = _BACKOFF
    ping_interval_s: float = PING_INTERVAL_S
    ping_timeout_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Login(Server):
    """The account to log in to.

    Attributes:
        jid: the JID of the account, with or without a resource.
        password: its password.
        tls: starttls, direct or off.
        ca_file: a PEM file with the only certificates to trust; None: those of the
            system.
    """

    jid: str
    password: str = field(repr=False)
    tls: str = "starttls"
    ca_file: Path | None = None

    @property
    def domain(self) -> str:
        """The domain of the account."""
        return domain_of(self.jid)

    @classmethod
    def of(
        cls,
        jid: str,
        password: str,
        *,
        host: str | None = None,
        port: int | None = None,
        tls: str = "starttls",
        ca_file: str | os.PathLike[str] | None = None,
        **server: Any,
    ) -> Self:
        """The settings of an account, checked as far as possible without a server.

        Args:
            jid: as above.
            password: as above.
            host: the server; None: from DNS. But if there is a port or tls is off, None
                means the domain of the JID.
            port: the port of the server; None: from DNS, or the usual one.
            tls: starttls or direct; off is permitted only for a loopback address.
            ca_file: as above.
            server: the other settings; see `Server`.

        Raises:
            ValueError: a setting is not valid. The text begins with the name of the
                setting, or with `the password`, and never shows the password.
        """
        user, domain = user_of(jid), domain_of(jid)
        if not user or not domain:
            raise ValueError(f"jid {jid}: an account has the form user@domain")
        if tls not in TLS_MODES:
            raise ValueError(f"tls {tls}: it must be one of {', '.join(TLS_MODES)}")
        if host is None and (port is not None or tls == "off"):
            host = domain
        if tls == "off" and not is_loopback(host or ""):
            raise ValueError(
                f"tls off is for a loopback address only, and {host} is not known as one"
            )
        login = cls(
            jid=jid,
            password=password,
            host=host and host.strip("[]"),
            port=port or (PORT_DIRECT if tls == "direct" else PORT_STARTTLS),
            tls=tls,
            ca_file=None if ca_file is None else Path(ca_file),
            **server,
        )
        login.check()
        return login

    def check(self) -> None:
        """Check everything that can be checked without a connection.

        Raises:
            ValueError: the password or the CA file cannot be used. The text gives the
                reason, without the password.
        """
        from slixmpp.util.sasl.client import saslprep  # `--help` does not need it
        from slixmpp.util.stringprep_profiles import StringPrepError

        try:
            saslprep(self.password)
        except StringPrepError:
            raise ValueError(
                "the password has characters that no password can have (RFC 4013)"
            ) from None
        if self.ca_file is not None:
            # The system's certificates take longer than all the rest of a command.
            self.tls_context()

    def tls_context(self) -> ssl.SSLContext:
        """A context that checks the certificate chain and the host name.

        Raises:
            ValueError: ca_file cannot be read, or holds no certificates.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            reason = "not PEM" if isinstance(error, ssl.SSLError) else error.strerror
            raise ValueError(f"ca_file {self.ca_file}: {reason}") from None
        if self.tls == "direct":
            # XEP-0368 §3: one port may serve several protocols.
            context.set_alpn_protocols([ALPN])
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Component(Server):
    """The component to log in as (XEP-0114).

    Attributes:
        jid: the domain of the component.
        secret: the secret shared with the server.
    """

    jid: str
    secret: str = field(repr=False)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: a loopback address, or the name localhost."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"
