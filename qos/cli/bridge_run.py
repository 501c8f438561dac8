"""A bridge as a command: the broker of its URL, and the account of its options."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from qos.cli.bridge import PASSWORD_FILE, PASSWORD_VARIABLE
from qos.cli.output import note
from qos.cli.ready import report_ready
from qos.cli.status import Status
from qos.errors import UsageError
from qos.extras import how_to_install
from qos.journal.writer import JournalWriter
from qos.options.login import login_from, password_from
from qos.stream.login import AccountSession
from qos.stream.server import is_loopback
from qos.tls_files import TlsFiles

if TYPE_CHECKING:
    from qos.amqp.broker import Broker

__all__ = ["run"]

_PORTS = {"amqp": 5672, "amqps": 5671}


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    broker = _broker(arguments)
    if arguments.journal is not None and arguments.direction == "from":
        raise UsageError(
            "--journal is for --to-broker: what a bridge publishes is in the journal of "
            "the queue service"
        )
    login = login_from(arguments)
    # They need the extra.
    from qos.bridge.from_broker import FromBroker
    from qos.bridge.to_broker import ToBroker

    kind = FromBroker if arguments.direction == "from" else ToBroker
    async with (
        JournalWriter.opened(arguments.journal, login.jid, of_items=True) as journal,
        AccountSession(login) as session,
    ):
        bridge: FromBroker | ToBroker = kind(
            session,
            broker,
            arguments.service,
            arguments.node,
            backoff=login.backoff,
            connect_timeout_s=arguments.connect_timeout,
            drain_s=arguments.drain,
            grace_s=arguments.grace,
            journal=journal,
            ready=lambda: report_ready(session.client.boundjid.full),
        )
        session.start()
        task = asyncio.create_task(session.work(bridge.run()))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            note(f"stopping, within {arguments.grace:g} s")
            bridge.stop()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(bridge.run_left_s):
                    await asyncio.wait((task,))
            task.cancel()
            await asyncio.wait((task,))
            session.closing_s = min(session.closing_s, bridge.left_s)
            note("stopped; what was not done is given back")
            raise
        finally:
            if bridge.done or bridge.refused:
                note(f"carried {bridge.done}, refused {bridge.refused}")
    return Status.DONE


def _broker(arguments: argparse.Namespace) -> Broker:
    """The broker that the arguments name.

    Raises:
        UsageError: the URL is wrong, the extra is missing, or there is no password.
    """
    try:
        from qos.amqp.broker import Broker
    except ModuleNotFoundError as error:
        if error.name != "proton":
            raise
        raise UsageError(f"there is no proton: {how_to_install('amqp')}") from None
    # Its password must not be in the text of an error.
    wrong = "the URL of the broker is not amqp://USER@HOST:PORT/ADDRESS"
    try:
        url = urlsplit(arguments.broker)
        port = url.port
    except ValueError as error:
        raise UsageError(f"{wrong}: {error}") from None
    if url.scheme not in _PORTS or not url.hostname:
        raise UsageError(wrong)
    if url.query or url.fragment:
        raise UsageError(f"{wrong}: write ? as %3F, and # as %23")
    address = unquote(url.path[1:])
    if not address:
        raise UsageError(f"{wrong}: it names no address")
    tls = url.scheme == "amqps"
    if not tls and not is_loopback(url.hostname):
        raise UsageError(
            f"amqp://{url.hostname} would be without encryption, which is for a loopback "
            "address only: use amqps://"
        )
    if arguments.broker_ca_file is not None and not tls:
        raise UsageError("--broker-ca-file is for amqps://")
    user = unquote(url.username or "")
    return Broker(
        host=url.hostname,
        port=port or _PORTS[url.scheme],
        address=address,
        user=user,
        password=_password(arguments, url.password) if user else "",
        tls=_tls(arguments) if tls else None,
    )


def _password(arguments: argparse.Namespace, from_url: str | None) -> str:
    if from_url is None:
        return password_from(
            arguments.broker_password_file,
            variable=PASSWORD_VARIABLE,
            option=PASSWORD_FILE,
        )
    note(
        "the password in the URL can be seen by every user of this machine: use "
        f"{PASSWORD_VARIABLE} or {PASSWORD_FILE}"
    )
    return unquote(from_url)


def _tls(arguments: argparse.Namespace) -> TlsFiles:
    ca_file = arguments.broker_ca_file

    def context() -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"--broker-ca-file {ca_file}: {error}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    return TlsFiles(context, ca_file)
