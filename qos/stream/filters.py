"""slixmpp's filters of a stream, and those among them that are the application's."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, TypeVar

from slixmpp.basexmpp import BaseXMPP

from qos.stream import internals

__all__ = ["ForeignFilters", "is_foreign", "passes_iqs"]

_F = TypeVar("_F", bound=Callable[..., Any])

_MARK = "passes_iqs"


class ForeignFilters:
    """The application's filters of a stream in some modes: whether there are any."""

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
            self._seen = [list(each) for each in self._filters]
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
