"""The end of a slixmpp stream: ends everything that would outlive it.

Disconnecting does not end everything. slixmpp leaves the rest to the application: an
attempt to connect, timers, the task that sends, and plugins that hold files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from slixmpp.basexmpp import BaseXMPP
from slixmpp.plugins.base import PluginManager

from qos.stream import internals

__all__ = ["CLOSING_S", "close", "close_at_once"]

#: Seconds to wait for the server's end of the stream.
CLOSING_S = 2.0

#: The beginning of the names of slixmpp's timers for requests without an answer.
_REQUEST = "IqTimeout_"

#: A task whose request has ended may send another one: so often they are ended.
_ROUNDS = 3

#: The tasks that close a stream that could not begin: nobody else holds a reference.
_closing: set[asyncio.Task[None]] = set()


async def close(xmpp: BaseXMPP, wait_s: float = CLOSING_S) -> None:
    """End the session in order, and then everything that would outlive it.

    Plugins that are not slixmpp's own are disabled, and closed if they have an
    `aclose`. Harmless if the stream is closed already, was never connected, or has lost
    its server. The end of the stream is waited for this long; with 0 it is not asked for.
    """
    try:
        await xmpp.disconnect(wait_s)
    finally:
        xmpp.cancel_connection_attempt()
        await _end_requests(xmpp)
        for name in list(xmpp.scheduled_events):
            xmpp.cancel_schedule(name)
        await _close_plugins(cast(PluginManager, xmpp.plugin))
        # slixmpp runs this task for ever: slixmpp itself never ends it.
        sender = internals.sending_task(xmpp)
        if sender is not None:
            sender.cancel()
            await asyncio.wait((sender,))


def close_at_once(
    loop: asyncio.AbstractEventLoop, closing: Coroutine[Any, Any, None]
) -> None:
    """Close a stream that could not begin; no event loop needs to run."""
    if loop.is_running():
        task = loop.create_task(closing)
        _closing.add(task)
        task.add_done_callback(_closing.discard)
    else:
        loop.run_until_complete(closing)


async def _end_requests(xmpp: BaseXMPP) -> None:
    """Let the requests time out that nobody answers any more.

    Without its timer, the task that waits for the answer would wait for ever.
    """
    for _ in range(_ROUNDS):
        timers = xmpp.scheduled_events
        for name in [name for name in timers if name.startswith(_REQUEST)]:
            internals.end_request(timers.pop(name))
        # The tasks are woken in the next turn of the loop, and go on in the one after it.
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def _close_plugins(plugins: PluginManager) -> None:
    for name in list(plugins):
        plugin = plugins.get(name, None)
        if plugin is None or type(plugin).__module__.startswith("slixmpp."):
            continue
        if hasattr(plugin, "aclose"):
            await plugin.aclose()
        else:
            plugins.disable(name)  # type: ignore[no-untyped-call]  # slixmpp's lack
