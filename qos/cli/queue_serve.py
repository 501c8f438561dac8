"""`xmpp-qos queue serve`: a queue service, as a component or from an account."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses

from qos.cli.account import component_from, login_from, store_url
from qos.cli.logins import AccountSession, ComponentSession
from qos.cli.output import note
from qos.cli.session import Session
from qos.cli.status import CommandError, Status, UsageError
from qos.errors import LocalProtocolError, StoreInUse
from xep_0254.service import QueueService

__all__ = ["run"]

#: Whoever uses the service of an account knows its full JID, which has to stay.
_RESOURCE = "queue"


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    session, jid = _session_from(arguments)
    creators = None if arguments.creators == "all" else arguments.creators
    store = store_url(arguments, create=True, jid=jid, suffix=".queue.sqlite")
    if not store.startswith("sqlite:"):
        raise UsageError(f"--store {store}: queues are kept in sqlite:PATH only")
    async with session:
        try:
            service = QueueService(
                session.xmpp, store, creators=creators, journal=arguments.journal
            )
        except (LocalProtocolError, ValueError) as error:
            raise UsageError(f"--store {store}: {error}") from None
        except StoreInUse as error:
            hint = "each service needs its own (--store)"
            raise CommandError(f"{error}; {hint}", Status.STORE) from None
        try:
            session.start()
            await session.work(_serve(session))
        except asyncio.CancelledError:
            note("stopped; what is in the queues stays in the store")
            raise
        finally:
            await service.aclose()
    return Status.DONE


async def _serve(session: Session) -> None:
    await session.online.wait()
    note(f"ready {session.xmpp.boundjid.full}", name="")
    await asyncio.Event().wait()


def _session_from(arguments: argparse.Namespace) -> tuple[Session, str]:
    """The session to serve in, and the JID to serve at."""
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
