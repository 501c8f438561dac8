"""The AMQP 1.0 gateway of `queue serve`, and `queue amqp-user`, which writes its users."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import os
import ssl
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from qos.cli.output import note
from qos.cli.status import CommandError, Status
from qos.core.quota import domain_of
from qos.errors import UsageError
from qos.stream.server import is_loopback
from qos.users import NO_PASSWORD, Users, hashed, is_name
from xep_0254.service import QueueService

if TYPE_CHECKING:
    from qos.amqp.gateway import Gateway

__all__ = ["check", "listen", "run", "serving"]

_OPTIONS = ("amqp_tls", "amqp_users", "amqp_client_ca", "amqp_anonymous")


def check(arguments: argparse.Namespace, *, jid: str, component: bool) -> Users | None:
    """Check the options before anything is opened; returns the users.

    Raises:
        UsageError: they contradict each other, the extra is missing, or a file is wrong.
    """
    if arguments.amqp is None:
        for name in _OPTIONS:
            if getattr(arguments, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} is for the gateway of --amqp")
        return None
    try:
        import proton  # noqa: F401 - to know that it is there
    except ImportError:
        raise UsageError("there is no proton: pip install 'xmpp-qos[amqp]'") from None
    host, _ = arguments.amqp
    if arguments.amqp_users is None and arguments.amqp_anonymous is None:
        raise UsageError(
            "--amqp: nobody could log in without --amqp-users FILE (or "
            "--amqp-anonymous JID)"
        )
    if arguments.amqp_tls is None and not is_loopback(host):
        raise UsageError(
            f"--amqp {host}: an address of other machines needs --amqp-tls CERT KEY, "
            "since passwords are never sent unencrypted"
        )
    if arguments.amqp_client_ca is not None and arguments.amqp_tls is None:
        raise UsageError("--amqp-client-ca needs --amqp-tls CERT KEY")
    _tls(arguments)
    if arguments.amqp_users is None:
        return None
    return Users(arguments.amqp_users, jid if component else domain_of(jid))


@contextlib.asynccontextmanager
async def serving(
    arguments: argparse.Namespace,
    service: QueueService,
    users: Users | None,
    *,
    jid: str,
    component: bool,
) -> AsyncIterator[Gateway | None]:
    """Make the gateway known to the service, and close it at the end.

    `listen` is called when the service is ready.
    """
    if arguments.amqp is None:
        yield None
        return
    # It needs the extra.
    from qos.amqp.gateway import Gateway

    gateway = Gateway(
        service.engine,
        users=users,
        anonymous=arguments.amqp_anonymous,
        name=jid,
        own_domain=jid if component else "",
    )
    service.add_gateway(gateway)
    try:
        yield gateway
    finally:
        await gateway.aclose()


async def listen(arguments: argparse.Namespace, gateway: Gateway | None) -> None:
    """Listen, and say where.

    Raises:
        CommandError: the address cannot be used.
    """
    if gateway is None:
        return
    host, port = arguments.amqp
    try:
        found = await gateway.listen(host, port, tls=_tls(arguments))
    except OSError as error:
        text = f"--amqp {host}:{port}: {error.strerror or error}"
        raise CommandError(text, Status.UNREACHABLE) from None
    scheme = "amqp" if arguments.amqp_tls is None else "amqps"
    note(f"{scheme}://{host}:{found}")


def _tls(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    if arguments.amqp_tls is None:
        return None
    certificate, key = arguments.amqp_tls
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"--amqp-tls {certificate} {key}: {error}") from None
    if arguments.amqp_client_ca is not None:
        try:
            context.load_verify_locations(arguments.amqp_client_ca)
        except (OSError, ssl.SSLError) as error:
            path = arguments.amqp_client_ca
            raise UsageError(f"--amqp-client-ca {path}: {error}") from None
        # Others may log in with a password.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


# -- amqp-user -------------------------------------------------------------


async def run(arguments: argparse.Namespace) -> int:
    """Write or remove a user; see qos.cli.entry.Command."""
    path: Path = arguments.file
    name: str = arguments.name
    if not is_name(name):
        raise UsageError(f"{name!r} is neither the name of an account nor a bare JID")
    lines = _lines(path)
    others = [line for line in lines if line.partition(":")[0].strip() != name]
    if arguments.remove:
        if others == lines:
            raise CommandError(f"{path} has no user {name!r}", Status.REFUSED)
    elif arguments.certificate:
        others.append(f"{name}:{NO_PASSWORD}")
    else:
        others.append(f"{name}:{hashed(_password(name))}")
    _replace(path, "".join(f"{line}\n" for line in others))
    return Status.DONE


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def _password(name: str) -> str:
    """The password: asked for twice on a terminal, else the first line of stdin."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"password of {name}: ")
        if password != getpass.getpass("again: "):
            raise UsageError("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise UsageError("the password is empty")
    return password


def _replace(path: Path, content: str) -> None:
    """Replace the file as a whole: a service may read it at any time."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
