"""`xmpp-qos queue serve`: a queue service, as a component or from an account."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qos.cli import listening, queue_amqp, queue_http
from qos.cli.account import component_from, store_url
from qos.cli.output import note
from qos.cli.ready import report_ready, tell_systemd
from qos.cli.status import CommandError, Status
from qos.core.queue.bounds import QueueBounds
from qos.core.quota import Quotas
from qos.engine.queue_engine import QueueEngine
from qos.errors import LocalProtocolError, StoreInUse, UsageError
from qos.options.login import login_from
from qos.stream.login import AccountSession, ComponentSession
from qos.stream.session import Session
from xep_0254.service import QueueService

if TYPE_CHECKING:
    from qos.amqp import gateway as amqp_gateway
    from qos.rest import gateway as http_gateway

__all__ = ["run"]

#: The users of an account's service know its full JID, which therefore must not change.
_RESOURCE = "queue"

#: The number of open queues that the warning at the start names.
_NAMED = 5


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    session, jid = _session_from(arguments)
    store = store_url(arguments, create=True, jid=jid, suffix=".queue.sqlite")
    if not store.startswith("sqlite:"):
        raise UsageError(f"--store {store}: queues are kept in sqlite:PATH only")
    component = arguments.component is not None
    users = queue_amqp.check(arguments, jid=jid, component=component)
    http_users = queue_http.check(
        arguments, jid=jid, component=component, amqp_users=users
    )
    connections = listening.connection_limits(arguments)
    async with session:
        relays = http_users is not None and http_users[1] is not None
        service = _service(session, store, arguments, relays=relays)
        service.engine.doors.shares.limits = connections
        service.engine.recover_for_s = arguments.recover_for
        warning = _open_to_everybody(arguments.creators, *service.open_nodes())
        if warning:
            note(warning)
        _spare_what_is_loaded()
        try:
            async with (
                queue_amqp.serving(
                    arguments, service, users, jid=jid, component=component
                ) as amqp,
                queue_http.serving(
                    arguments, service, http_users, jid=jid, component=component
                ) as http,
            ):
                # Without a gateway, nobody could use it until there is a session.
                session.patient = amqp is not None or http is not None
                session.start()
                await session.work(
                    _serve(session, service.engine, arguments, amqp, http)
                )
        except asyncio.CancelledError:
            note("stopped; what is in the queues stays in the store")
            raise
        finally:
            await service.aclose()
    return Status.DONE


def _service(
    session: Session, store: str, arguments: argparse.Namespace, *, relays: bool
) -> QueueService:
    """The service on an open store.

    Raises:
        UsageError, CommandError: it cannot be, with these options.
    """
    try:
        return QueueService(
            session.xmpp,
            store,
            creators=arguments.creators,
            trust=arguments.trust,
            quotas=_quotas_from(arguments),
            bounds=QueueBounds(
                nodes_per_account=arguments.nodes_per_account,
                bytes_per_account=arguments.bytes_per_account,
                subscriptions_per_account=arguments.subscriptions_per_account,
            ),
            journal=arguments.journal,
            relays=relays,
        )
    except LocalProtocolError as error:
        raise UsageError(f"--store {store}: {error}") from None
    except ValueError as error:
        raise UsageError(str(error)) from None
    except StoreInUse as error:
        hint = "each service needs its own (--store)"
        raise CommandError(f"{error}; {hint}", Status.STORE) from None


def _spare_what_is_loaded() -> None:
    """Let the garbage collector pass over the code and the items that are there now.

    It stops everything while it looks at all objects: 50 ms for the code alone. What is
    spared is still freed when nothing refers to it any more.
    """
    gc.collect()
    gc.freeze()


def _quotas_from(arguments: argparse.Namespace) -> Quotas:
    limits = {
        field.name: getattr(arguments, f"quota_{field.name}")
        for field in dataclasses.fields(Quotas)
    }
    return Quotas(**limits)


def _open_to_everybody(
    creators: object, subscribe: Sequence[str], publish: Sequence[str]
) -> str:
    """The rights of everybody who can reach the service, as one line; '': none."""
    may = [
        *(["create queues (--creators anyone)"] if creators == "anyone" else []),
        *([f"work on {_names_of(subscribe)} (access_model=open)"] if subscribe else []),
        *([f"publish to {_names_of(publish)} (publish_model=open)"] if publish else []),
    ]
    if not may:
        return ""
    return f"warning: everybody who can reach this service may {'; '.join(may)}"


def _names_of(nodes: Sequence[str]) -> str:
    """The names of a few nodes, and the number of the others."""
    names = ", ".join(repr(name[:40]) for name in nodes[:_NAMED])
    more = len(nodes) - _NAMED
    return f"{names} and {more} more" if more > 0 else names


async def _serve(
    session: Session,
    engine: QueueEngine,
    arguments: argparse.Namespace,
    amqp: amqp_gateway.Gateway | None,
    http: http_gateway.Gateway | None,
) -> None:
    if amqp is not None or http is not None:
        # They serve without XMPP, too, as long as its server is away.
        engine.begin()
        await queue_amqp.listen(arguments, amqp)
        await queue_http.listen(arguments, http)
        tell_systemd()
    reporting = asyncio.create_task(_report(session))
    try:
        await engine.given_up.wait()
    finally:
        reporting.cancel()
    raise CommandError(engine.why_given_up, Status.STORE)


async def _report(session: Session) -> None:
    """Say when the first session is there."""
    await session.online.wait()
    report_ready(session.xmpp.boundjid.full)


def _session_from(arguments: argparse.Namespace) -> tuple[Session, str]:
    """The session to serve in, and the JID of the service."""
    if arguments.component is not None and arguments.jid is not None:
        raise UsageError("--component or --jid: only one of them")
    if arguments.component is not None:
        component = component_from(arguments)
        return ComponentSession(component), component.jid
    if arguments.jid is None:
        raise UsageError("--component or --jid is needed: what to serve as")
    login = login_from(arguments)
    if "/" not in login.jid:
        login = dataclasses.replace(login, jid=f"{login.jid}/{_RESOURCE}")
    return AccountSession(login), login.jid
