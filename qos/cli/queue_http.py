"""The HTTP gateway of `queue serve`."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from qos.cli import listening
from qos.core.rest.push_targets import PushRules
from qos.core.strings import domain_of
from qos.errors import UsageError
from qos.extras import how_to_install
from qos.users import Users
from xep_0254.service import QueueService

if TYPE_CHECKING:
    from qos.core.payers import Rates
    from qos.rest.gateway import Gateway
    from qos.rest.targets import Targets

__all__ = ["check", "listen", "serving"]

_OPTIONS = (
    *("http_tls", "http_users", "http_link_headers", "http_send", "http_push"),
    *(
        "http_property_header",
        "http_base",
        "http_requests_per_second",
        "http_bytes_per_second",
    ),
)


def check(
    arguments: argparse.Namespace,
    *,
    jid: str,
    component: bool,
    amqp_users: Users | None,
) -> tuple[Users, Targets | None] | None:
    """Check the options before anything is opened; returns the users, and their targets.

    Args:
        arguments: of the command.
        jid: of the service.
        component: it is a component.
        amqp_users: the users of the other gateway; None: it has none.

    Raises:
        UsageError: they contradict each other, the extra is missing, or a file is wrong.
    """
    if not listening.is_wanted(arguments, "http", _OPTIONS):
        return None
    try:
        import aiohttp  # noqa: F401 - to know that it is there
    except ImportError:
        raise UsageError(f"there is no aiohttp: {how_to_install('rest')}") from None
    if arguments.http_users is None:
        raise UsageError("--http: nobody could log in without --http-users FILE")
    listening.check_address(arguments, "http")
    listening.tls(arguments, "http")
    try:
        PushRules.of(arguments.http_push or ())
    except ValueError as error:
        raise UsageError(f"--http-push: {error}") from None
    domain = jid if component else domain_of(jid)
    # One set of checks for all doors, and one memory if the file is the same.
    if amqp_users is not None and arguments.http_users == arguments.amqp_users:
        users = amqp_users
    else:
        checks = None if amqp_users is None else amqp_users.checks
        users = Users(arguments.http_users, domain, checks)
    path = arguments.http_send
    if path is None:
        return users, None
    from qos.rest.targets import Targets

    return users, Targets(path, domain)


@contextlib.asynccontextmanager
async def serving(
    arguments: argparse.Namespace,
    service: QueueService,
    users_and_targets: tuple[Users, Targets | None] | None,
    *,
    jid: str,
    component: bool,
) -> AsyncIterator[Gateway | None]:
    """Make the gateway known to the service, and close it at the end.

    `listen` is called when the service is ready.
    """
    if users_and_targets is None:
        yield None
        return
    # It needs the extra.
    from qos.rest.gateway import Gateway
    from qos.rest.push.client import PushClient

    users, targets = users_and_targets
    gateway = Gateway(
        service.engine,
        users=users,
        own_domain=jid if component else "",
        link_headers=bool(arguments.http_link_headers),
        property_headers=arguments.http_property_header or (),
        base=arguments.http_base or "",
        relay=None if targets is None else service.relay(),
        targets=targets,
        rates=_rates(arguments),
        push=PushClient(PushRules.of(arguments.http_push or ())),
    )
    service.add_gateway(gateway)
    try:
        yield gateway
    finally:
        await gateway.aclose()


def _rates(arguments: argparse.Namespace) -> Rates:
    from qos.core.payers import Rates

    rates = {
        "requests": arguments.http_requests_per_second,
        "bytes": arguments.http_bytes_per_second,
    }
    return Rates(**{name: rate for name, rate in rates.items() if rate is not None})


async def listen(arguments: argparse.Namespace, gateway: Gateway | None) -> None:
    """Listen, and say where.

    Raises:
        CommandError: the address cannot be used.
    """
    if gateway is not None:
        await listening.listen(
            arguments, "http", gateway.listen, listening.tls(arguments, "http")
        )
