"""Our plugins that are registered on a stream, with their types."""

from __future__ import annotations

from typing import TypeVar

from slixmpp.basexmpp import BaseXMPP
from slixmpp.plugins.base import BasePlugin

from qos import arguments

__all__ = ["plugin_of"]

_P = TypeVar("_P", bound=BasePlugin)


def plugin_of(xmpp: BaseXMPP, kind: type[_P]) -> _P:
    """The plugin of this class that is registered on a stream.

    Raises:
        InvalidArgument: `xmpp` is not a stream of slixmpp.
        LookupError: no such plugin is registered; the text tells how to register it.
    """
    arguments.instance(BaseXMPP, "xmpp", xmpp, "a client or component of slixmpp")
    plugin = xmpp.plugin.get(kind.name, None)
    if not isinstance(plugin, kind):
        raise LookupError(
            f"{kind.name} is not registered on {xmpp.boundjid}: "
            f"import {kind.name}, then call register_plugin({kind.name!r})"
        )
    return plugin
