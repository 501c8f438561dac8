"""The login of one AMQP connection by SASL, before proton sees a byte."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from qos.core.amqp.sasl import (
    ANONYMOUS,
    EXTERNAL,
    PLAIN,
    SASL_HEADER,
    Attempt,
    SaslServer,
    WrongProtocol,
)
from qos.core.amqp.values import DecodeError

if TYPE_CHECKING:
    from qos.amqp.gateway import Gateway

__all__ = ["Login"]

log = logging.getLogger(__name__)


class Login:
    """The login of one peer."""

    def __init__(
        self,
        tcp: asyncio.Transport,
        gateway: Gateway,
        *,
        begin: Callable[[str, bytes], None],
        drop: Callable[[str], None],
    ) -> None:
        """Offer the mechanisms that are possible on this connection.

        Args:
            tcp: the connection.
            gateway: knows the users.
            begin: gets the account, and the bytes that have come after the login.
            drop: ends the connection, for this reason.
        """
        self._tcp = tcp
        self._gateway = gateway
        self._begin = begin
        self._drop = drop
        self._sasl: SaslServer | None = SaslServer(self._mechanisms())
        self._checking: asyncio.Task[None] | None = None

    def received(self, data: bytes) -> None:
        """Take bytes of the peer, up to its one attempt to log in."""
        if self._sasl is None:
            return
        try:
            attempt = self._sasl.receive(data)
        except WrongProtocol:
            self._tcp.write(SASL_HEADER)
            self._drop("no SASL")
            return
        except DecodeError as error:
            self._drop(str(error))
            return
        self._flush(self._sasl)
        if attempt is not None:
            self._tcp.pause_reading()
            check = self._check(attempt, self._sasl)
            self._checking = asyncio.get_running_loop().create_task(check)

    def cancel(self) -> None:
        """The connection is lost."""
        if self._checking is not None:
            self._checking.cancel()

    def _mechanisms(self) -> list[str]:
        offered = []
        encrypted = self._tcp.get_extra_info("ssl_object") is not None
        if self._certificate_name():
            offered.append(EXTERNAL)
        if self._gateway.users is not None and (encrypted or self._is_local()):
            offered.append(PLAIN)
        if self._gateway.anonymous is not None:
            offered.append(ANONYMOUS)
        return offered

    def _is_local(self) -> bool:
        peer = self._tcp.get_extra_info("peername")
        return ipaddress.ip_address(peer[0].partition("%")[0]).is_loopback

    def _certificate_name(self) -> str:
        """The common name of the peer's certificate, which TLS has verified; or ''."""
        tls: ssl.SSLObject | None = self._tcp.get_extra_info("ssl_object")
        certificate = tls.getpeercert() if tls is not None else None
        subject: dict[str, str] = {}
        for relative in (certificate or {}).get("subject", ()):
            assert isinstance(relative, tuple)
            subject.update(dict(relative))  # type: ignore[arg-type]  # pairs of texts
        return subject.get("commonName", "")

    def _flush(self, sasl: SaslServer) -> None:
        if sasl.output:
            self._tcp.write(bytes(sasl.output))
            sasl.output.clear()

    async def _check(self, attempt: Attempt, sasl: SaslServer) -> None:
        account = await self._account(attempt)
        if account is None:
            peer = str(self._tcp.get_extra_info("peername"))
            log.warning("%s: no login as %r", peer, attempt.user)
            # One guess a second for each connection.
            await asyncio.sleep(1.0)
        # A peer that has begun without SASL hears nothing of it.
        rest = sasl.decided(account is not None)
        if rest.startswith(b"AMQP\x00"):
            sasl.output.clear()
        self._flush(sasl)
        self._sasl = None
        if account is None:
            self._drop("wrong password or user")
        else:
            self._begin(account, rest)

    async def _account(self, attempt: Attempt) -> str | None:
        gateway = self._gateway
        if attempt.mechanism == ANONYMOUS:
            return gateway.anonymous
        assert gateway.users is not None
        if attempt.mechanism == EXTERNAL:
            return gateway.users.account(self._certificate_name())
        return await gateway.users.check(attempt.user, attempt.password)
