"""A session with a single request to a queue service."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import TypeVar

import xep_0254  # noqa: F401 - makes the plugin known
from qos.cli.output import note
from qos.core.strings import bare
from qos.options.login import login_from
from qos.stream.login import AccountSession
from xep_0254.queueing import XEP_0254

__all__ = ["asked"]

T = TypeVar("T")


async def asked(
    arguments: argparse.Namespace,
    ask: Callable[[AccountSession, XEP_0254], Awaitable[T]],
    progress: Callable[[], str] = str,
) -> T:
    """Log in, ask, and log out.

    Args:
        arguments: with the options of add_login and --timeout.
        ask: called when there is a session.
        progress: says how far the request got, if it is stopped, or ''.

    Raises:
        CannotConnect: no session is possible.
        RequestRefused: not done.
        NoAnswer: it may have been done.
    """
    login = login_from(arguments)
    login = dataclasses.replace(login, jid=bare(login.jid))
    async with AccountSession(login) as session:
        options = {"timeout_s": arguments.timeout}
        session.client.register_plugin("xep_0254", options)

        async def work() -> T:
            await session.online.wait()
            return await ask(session, XEP_0254.of(session.client))

        session.start()
        try:
            return await session.work(work())
        except asyncio.CancelledError:
            note(f"stopped{progress()}")
            raise
