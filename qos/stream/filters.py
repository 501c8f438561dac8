"""slixmpp's filters of a stream: which of them are the application's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from slixmpp.basexmpp import BaseXMPP

__all__ = ["filters_of", "is_foreign", "passes_iqs"]

_F = TypeVar("_F", bound=Callable[..., Any])

_MARK = "passes_iqs"


def filters_of(xmpp: BaseXMPP, mode: str) -> list[Any]:
    """The filters of a stream in this mode, as slixmpp keeps them: read only.

    Args:
        xmpp: the stream.
        mode: `in`, `out`, `out_sync` or `out_sce`.
    """
    filters: dict[str, list[Any]] = getattr(xmpp, "_XMLStream__filters", {})
    return filters.get(mode, [])


def passes_iqs(filter_: _F) -> _F:
    """Mark a filter that lets every iq pass, and wants to see none.

    An object of each iq would be made for it otherwise.
    """
    filter_.__dict__[_MARK] = True
    return filter_


def is_foreign(filter_: object) -> bool:
    """Whether a filter is the application's: neither slixmpp's nor one of ours.

    One that `passes_iqs` is none of those that have to be asked.
    """
    if getattr(filter_, _MARK, False):
        return False
    module = str(getattr(filter_, "__module__", ""))
    return not module.startswith(("slixmpp.", "qos.stream.", "xep_qos.", "xep_0254."))
