"""The AMQP 1.0 gateway of `queue serve`."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from qos.cli import listening
from qos.core.strings import domain_of
from qos.errors import UsageError
from qos.extras import how_to_install
from qos.users import Users
from xep_0254.service import QueueService

if TYPE_CHECKING:
    from qos.amqp.gateway import Gateway

__all__ = ["check", "listen", "serving"]

_OPTIONS = ("amqp_tls", "amqp_users", "amqp_client_ca", "amqp_anonymous")


def check(arguments: argparse.Namespace, *, jid: str, component: bool) -> Users | None:
    """Check the options before anything is opened; returns the users.

    Raises:
        UsageError: they contradict each other, the extra is missing, or a file is wrong.
    """
    if not listening.is_wanted(arguments, "amqp", _OPTIONS):
        return None
    try:
        import proton  # noqa: F401 - to know that it is there
    except ImportError:
        raise UsageError(f"there is no proton: {how_to_install('amqp')}") from None
    if arguments.amqp_users is None and arguments.amqp_anonymous is None:
        raise UsageError(
            "--amqp: nobody could log in without --amqp-users FILE (or "
            "--amqp-anonymous JID)"
        )
    listening.check_address(arguments, "amqp")
    if arguments.amqp_client_ca is not None and arguments.amqp_tls is None:
        raise UsageError("--amqp-client-ca needs --amqp-tls CERT KEY")
    listening.tls(arguments, "amqp")
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
    if gateway is not None:
        await listening.listen(
            arguments, "amqp", gateway.listen, listening.tls(arguments, "amqp")
        )
