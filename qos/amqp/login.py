"""The login of one AMQP connection by SASL, before proton sees a byte."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
from collections.abc import Callable

from qos.amqp.ports import Hub
from qos.core.amqp.sasl import (
    ANONYMOUS,
    EXTERNAL,
    PLAIN,
    SASL_HEADER,
    Attempt,
    Outcome,
    SaslServer,
    WrongProtocol,
)
from qos.core.amqp.values import DecodeError
from qos.core.connection_shares import TooMany
from qos.engine.doors import Arrival
from qos.users import Grant, TooBusy

__all__ = ["Login"]

log = logging.getLogger(__name__)


class Login:
    """The login of one peer."""

    def __init__(
        self,
        tcp: asyncio.Transport,
        hub: Hub,
        arrival: Arrival,
        *,
        begin: Callable[[Grant, bytes], None],
        drop: Callable[[str], None],
    ) -> None:
        """Offer the mechanisms that are possible on this connection.

        Args:
            tcp: the connection.
            hub: knows the users.
            arrival: of the connection.
            begin: gets what the user has, and the bytes that have come after the login.
            drop: ends the connection, for this reason, when the peer has read what was
                written.
        """
        self._tcp = tcp
        self._hub = hub
        self._arrival = arrival
        self._begin = begin
        self._drop = drop
        self._sasl: SaslServer | None = SaslServer(self._mechanisms())
        self._checking: asyncio.Task[None] | None = None
        arrival.before_end = self._end

    def received(self, data: bytes) -> None:
        """Take bytes of the peer, up to its one attempt to log in."""
        if self._sasl is None:
            return
        try:
            attempt = self._sasl.receive(data)
        except WrongProtocol:
            self._tcp.write(SASL_HEADER)
            self._sasl = None
            self._drop("no SASL")
            return
        except DecodeError as error:
            self._flush(self._sasl)
            self._sasl = None
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

    def _end(self) -> None:
        """Tell that it took too long, or that there is no room, as far as is known."""
        sasl, self._sasl = self._sasl, None
        self.cancel()
        if sasl is not None and sasl.begun:
            sasl.decided(Outcome.SYS_TEMP)
            self._flush(sasl)

    def _mechanisms(self) -> list[str]:
        offered = []
        encrypted = self._tcp.get_extra_info("ssl_object") is not None
        if self._hub.users is not None:
            if self._certificate_name():
                offered.append(EXTERNAL)
            if encrypted or self._is_local():
                offered.append(PLAIN)
        if self._hub.anonymous is not None:
            offered.append(ANONYMOUS)
        return offered

    def _is_local(self) -> bool:
        address = self._arrival.address.partition("%")[0]
        return ipaddress.ip_address(address).is_loopback

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
        grant, outcome, why = None, Outcome.OK, ""
        with self._arrival.checked():
            try:
                grant = await self._grant(attempt)
                if grant is not None:
                    self._arrival.log_in(grant.account)
                else:
                    self._arrival.warn(f"no login as {attempt.user!r}")
                    outcome, why = Outcome.AUTH, "wrong password or user"
                    # One guess a second for each connection.
                    await asyncio.sleep(1.0)
            except (TooBusy, TooMany) as error:
                outcome, why = Outcome.SYS_TEMP, str(error)
            except Exception:
                log.exception("a login could not be checked")
                outcome, why = Outcome.SYS, "internal error"
        rest = sasl.decided(outcome)
        self._flush(sasl)
        self._sasl = None
        if why or grant is None:
            self._drop(why)
        else:
            self._begin(grant, rest)

    async def _grant(self, attempt: Attempt) -> Grant | None:
        hub = self._hub
        if attempt.mechanism == ANONYMOUS:
            anonymous = hub.anonymous
            return None if anonymous is None else Grant(anonymous, "", "")
        assert hub.users is not None
        if attempt.mechanism == EXTERNAL:
            return hub.users.grant(self._certificate_name())
        return await hub.users.check(
            attempt.user, attempt.password, address=self._arrival.payer
        )
