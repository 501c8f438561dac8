"""Mistakes of the command or the queue service, made on purpose; a campaign finds them.

A mutant changes the code of the process that it is applied to, before the command
begins, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from slixmpp.stanza import Message

from qos.cli.account import Account
from qos.cli.connection import Connection
from qos.cli.stdout import Stdout
from qos.core.queue.requests import (
    Publish,
    Request,
    Retract,
    Unlock,
)
from qos.core.queue.results import Ok, PublishResult, Result
from qos.core.queue.selector import Selector
from qos.engine.queue_engine import Answer, Parts, QueueEngine
from xep_qos.takers import Takers

__all__ = ["MUTANTS", "NO_SELECTOR", "apply_mutant"]

#: A mistake for which a campaign has workers of its own.
NO_SELECTOR: Final = "a selector that is not asked"


def _one_write() -> None:
    """A text is written by one write(2), whatever it returns.

    And torn lines are not ended.
    """

    def begin(self: Stdout, text: str) -> asyncio.Future[None]:
        with contextlib.suppress(OSError):
            os.write(sys.stdout.fileno(), text.encode())
        future: asyncio.Future[None] = self.loop.create_future()
        future.set_result(None)
        return future

    Stdout.begin = begin  # type: ignore[method-assign]


def _no_taker() -> None:
    """A command that only sends accepts messages as well, and confirms them all."""
    init = Connection.__init__

    def receiving(
        self: Connection, account: Account, *, receives: bool, quiet: bool = False
    ) -> None:
        del receives
        init(self, account, receives=True, quiet=quiet)

    Connection.__init__ = receiving  # type: ignore[method-assign]
    hand_over = Takers.hand_over

    def confirming(self: Takers, message: Message, msg_id: str) -> bool:
        hand_over(self, message, msg_id)
        return True

    Takers.hand_over = confirming  # type: ignore[method-assign]


def _any_item() -> None:
    """A queue service takes every selector for true."""

    def matches(self: Selector, names: object) -> bool:
        del self, names
        return True

    Selector.matches = matches  # type: ignore[method-assign]


#: Seconds by which an answer comes before its commit.
_EARLY_S = 0.3


def _answered_early(resource: str, *kinds: type[Request]) -> None:
    """A gateway's client is answered before what it asks for is on disk.

    Args:
        resource: what that of the gateway's full JIDs begins with.
        kinds: of requests that are answered early.
    """
    do = QueueEngine.request

    def early(
        self: QueueEngine,
        request: Request,
        requester: str,
        answer: Answer,
        *,
        parts: Parts | None = None,
    ) -> None:
        ours = requester.partition("/")[2].startswith(resource)
        if not (ours and isinstance(request, kinds)):
            do(self, request, requester, answer, parts=parts)
            return
        result: Result = Ok()
        if isinstance(request, Publish):
            ids = tuple(item.item_id for item in request.entries)
            result = PublishResult(request.node, ids)
        loop = asyncio.get_running_loop()
        loop.call_soon(answer, result, {})
        loop.call_later(_EARLY_S, do, self, request, requester, lambda *_: None)

    QueueEngine.request = early  # type: ignore[method-assign]


#: Each mistake, by its name.
MUTANTS: Mapping[str, Callable[[], None]] = {
    "a short write is taken for success": _one_write,
    "a confirm without a taker": _no_taker,
    NO_SELECTOR: _any_item,
    "HTTP: posted before the commit": partial(_answered_early, "http", Publish),
    "HTTP: acknowledged before the commit": partial(
        _answered_early, "http-", Retract, Unlock
    ),
    "AMQP: accepted before the commit": partial(_answered_early, "amqp", Publish),
    "AMQP: settled before the commit": partial(
        _answered_early, "amqp-", Retract, Unlock
    ),
}


def apply_mutant(name: str) -> None:
    """Make this mistake from now on; '': none."""
    if name:
        MUTANTS[name]()
