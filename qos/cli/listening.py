"""Options, addresses and TLS of the gateways of `queue serve`.

A gateway has an option with its own name (`--amqp HOST:PORT`), and others that begin with
that name.
"""

from __future__ import annotations

import argparse
import resource
import ssl
from collections.abc import Sequence
from typing import Protocol

from qos.cli.output import note
from qos.cli.status import CommandError, Status
from qos.core.connection_shares import ConnectionLimits
from qos.errors import UsageError
from qos.stream.server import is_loopback
from qos.tls_files import Tls, TlsFiles

__all__ = [
    "check_address",
    "connection_limits",
    "files_max",
    "is_wanted",
    "listen",
    "tls",
]

#: File descriptors that are kept for the stream of XMPP, the store, the journal, requests to
#: push targets and children.
_FILES_KEPT = 200


class _Listen(Protocol):
    """Listens at an address; returns the port."""

    async def __call__(self, host: str, port: int, *, tls: Tls | None) -> int: ...


def is_wanted(arguments: argparse.Namespace, name: str, options: Sequence[str]) -> bool:
    """Whether the gateway of this name is asked for.

    Raises:
        UsageError: it is not, but one of its other options is there.
    """
    if getattr(arguments, name) is not None:
        return True
    for dest in options:
        if getattr(arguments, dest) is not None:
            option = f"--{dest.replace('_', '-')}"
            raise UsageError(f"{option} is for the gateway of --{name}")
    return False


def check_address(arguments: argparse.Namespace, name: str) -> None:
    """Check that no password is sent unencrypted.

    Raises:
        UsageError: an address of other machines, without TLS.
    """
    host, _ = getattr(arguments, name)
    if getattr(arguments, f"{name}_tls") is None and not is_loopback(host):
        raise UsageError(
            f"--{name} {host}: an address of other machines needs --{name}-tls CERT KEY, "
            "since passwords are never sent unencrypted"
        )


def connection_limits(arguments: argparse.Namespace) -> ConnectionLimits:
    """The limits on connections; says if there are fewer than usual.

    Raises:
        UsageError: there are options for them, but no gateway.
    """
    limits = {
        "address": arguments.connections_per_address,
        "account": arguments.connections_per_account,
    }
    limits = {name: limit for name, limit in limits.items() if limit is not None}
    if arguments.amqp is None and arguments.http is None:
        for name in limits:
            raise UsageError(
                f"--connections-per-{name} is for the gateways of --amqp and --http"
            )
        return ConnectionLimits()
    usual = ConnectionLimits().total
    files = files_max(usual + _FILES_KEPT)
    total = min(usual, max(files // 2, files - _FILES_KEPT))
    if total < usual:
        note(
            f"warning: this process may have {files} files open (ulimit -n), so only "
            f"{total} connections come in at a time, and not {usual}"
        )
    return ConnectionLimits(total=total, **limits)


def files_max(count: int) -> int:
    """The files that this process may have open: as many as are wanted, if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= count:
        return count
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        return soft
    return most


def tls(arguments: argparse.Namespace, name: str) -> TlsFiles | None:
    """The TLS of the gateway; None: without.

    Raises:
        UsageError: the files cannot be used.
    """
    files = getattr(arguments, f"{name}_tls")
    if files is None:
        return None
    certificate, key = files
    client_ca = getattr(arguments, f"{name}_client_ca", None)

    def context() -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"--{name}-tls {certificate} {key}: {error}") from None
        if client_ca is not None:
            try:
                context.load_verify_locations(client_ca)
            except (OSError, ssl.SSLError) as error:
                text = f"--{name}-client-ca {client_ca}: {error}"
                raise UsageError(text) from None
            # Others may log in with a password.
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    return TlsFiles(context, certificate, key, client_ca)


async def listen(
    arguments: argparse.Namespace,
    name: str,
    start: _Listen,
    tls: Tls | None,
) -> None:
    """Listen, and say where.

    Raises:
        CommandError: the address cannot be used.
    """
    host, port = getattr(arguments, name)
    try:
        bound_port = await start(host, port, tls=tls)
    except OSError as error:
        text = f"--{name} {host}:{port}: {error.strerror or error}"
        raise CommandError(text, Status.UNREACHABLE) from None
    address = f"[{host}]" if ":" in host else host
    note(f"{name}{'' if tls is None else 's'}://{address}:{bound_port}")
