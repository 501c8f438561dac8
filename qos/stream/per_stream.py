"""What belongs to a stream: our plugins, objects of which it has one each, and filters."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, Protocol, TypeVar

from slixmpp.basexmpp import BaseXMPP
from slixmpp.plugins.base import BasePlugin

from qos import arguments
from qos.stream import internals

__all__ = [
    "ForeignFilters",
    "is_foreign",
    "one_per_stream",
    "passes_iqs",
    "plugin_of",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_P = TypeVar("_P", bound=BasePlugin)

#: Of a filter that lets every iq pass.
_MARK = "passes_iqs"


class _OfStream(Protocol):
    def __init__(self, xmpp: BaseXMPP) -> None: ...


_T = TypeVar("_T", bound=_OfStream)


def one_per_stream(cls: type[_T], xmpp: BaseXMPP) -> _T:
    """The object of this class that belongs to the stream, created if there is none.

    It is an attribute of the stream, and so lives as long as the stream.
    """
    name = f"_xep_qos_{cls.__name__.lower()}"
    instance = xmpp.__dict__.get(name)
    if instance is None:
        instance = xmpp.__dict__[name] = cls(xmpp)
    assert isinstance(instance, cls)
    return instance


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


class ForeignFilters:
    """slixmpp's filters of a stream in some modes: whether the application has any."""

    def __init__(self, xmpp: BaseXMPP, *modes: str) -> None:
        """Watch these modes; see `internals.filters`."""
        self._filters = [internals.filters(xmpp, mode) for mode in modes]
        self._seen: list[list[Any]] = []
        self._any = False

    def any(self) -> bool:
        """Whether there is one.

        Called for each stanza, but computed only after a change.
        """
        if self._seen != self._filters:
            self._seen = [list(group) for group in self._filters]
            self._any = any(map(is_foreign, chain.from_iterable(self._seen)))
        return self._any


def passes_iqs(filter_: _F) -> _F:
    """Mark a filter that lets every iq pass, and does not need to see any.

    Otherwise an object of each iq would be made for it.
    """
    filter_.__dict__[_MARK] = True
    return filter_


def is_foreign(filter_: object) -> bool:
    """Whether a filter is the application's: neither slixmpp's nor ours.

    A filter marked by `passes_iqs` is not foreign: it need not be asked.
    """
    if getattr(filter_, _MARK, False):
        return False
    module = str(getattr(filter_, "__module__", ""))
    return not module.startswith(("slixmpp.", "qos.stream.", "xep_qos.", "xep_0254."))
