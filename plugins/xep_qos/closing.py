"""The end of a slixmpp stream: whatever would outlive it is ended here.

slixmpp leaves to the application what disconnecting does not end: an attempt to
connect, timers, the task that sends, and plugins that hold files.
"""

from __future__ import annotations

import asyncio
from typing import cast

from slixmpp.basexmpp import BaseXMPP
from slixmpp.plugins.base import PluginManager

__all__ = ["close"]


async def close(xmpp: BaseXMPP) -> None:
    """End the session in order, and then everything that would outlive it.

    Plugins that are not slixmpp's own are disabled, and closed if they can be
    (`aclose`). No harm if it is closed already, was never connected, or lost its
    server.
    """
    try:
        await xmpp.disconnect()
    finally:
        xmpp.cancel_connection_attempt()
        for name in list(xmpp.scheduled_events):
            xmpp.cancel_schedule(name)
        await _close_plugins(cast(PluginManager, xmpp.plugin))
        # slixmpp runs this task for ever: nothing of its own ends it.
        sender = xmpp._run_out_filters
        if sender is not None:
            sender.cancel()
            await asyncio.wait((sender,))


async def _close_plugins(plugins: PluginManager) -> None:
    for name in list(plugins):
        plugin = plugins.get(name, None)
        if plugin is None or type(plugin).__module__.startswith("slixmpp."):
            continue
        if hasattr(plugin, "aclose"):
            await plugin.aclose()
        else:
            plugins.disable(name)  # type: ignore[no-untyped-call]  # slixmpp's lack
