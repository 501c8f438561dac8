"""What the gateways of `queue serve` share: their options, addresses and TLS.

A gateway has an option with its own name (`--amqp HOST:PORT`), and others that begin with
that name.
"""

from __future__ import annotations

import argparse
import ssl
from collections.abc import Sequence
from typing import Protocol

from qos.cli.output import note
from qos.cli.status import CommandError, Status
from qos.errors import UsageError
from qos.stream.server import is_loopback

__all__ = ["check_address", "is_wanted", "listen", "tls"]


class _Listen(Protocol):
    """Listens at an address; returns the port."""

    async def __call__(
        self, host: str, port: int, *, tls: ssl.SSLContext | None
    ) -> int: ...


def is_wanted(arguments: argparse.Namespace, name: str, options: Sequence[str]) -> bool:
    """Whether the gateway of this name is asked for.

    Raises:
        UsageError: it is not, but one of its other options is there.
    """
    if getattr(arguments, name) is not None:
        return True
    for each in options:
        if getattr(arguments, each) is not None:
            option = f"--{each.replace('_', '-')}"
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


def tls(arguments: argparse.Namespace, name: str) -> ssl.SSLContext | None:
    """The context of the gateway's TLS; None: without.

    Raises:
        UsageError: the files cannot be used.
    """
    files = getattr(arguments, f"{name}_tls")
    if files is None:
        return None
    certificate, key = files
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--{name}-tls {certificate} {key}: {error}") from None
    return context


async def listen(
    arguments: argparse.Namespace,
    name: str,
    start: _Listen,
    context: ssl.SSLContext | None,
) -> None:
    """Listen, and say where.

    Raises:
        CommandError: the address cannot be used.
    """
    host, port = getattr(arguments, name)
    try:
        found = await start(host, port, tls=context)
    except OSError as error:
        text = f"--{name} {host}:{port}: {error.strerror or error}"
        raise CommandError(text, Status.UNREACHABLE) from None
    shown = f"[{host}]" if ":" in host else host
    note(f"{name}{'' if context is None else 's'}://{shown}:{found}")
