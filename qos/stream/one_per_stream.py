"""Objects that belong to a stream: one of each class, created when first asked for."""

from __future__ import annotations

from typing import Protocol, TypeVar

from slixmpp.basexmpp import BaseXMPP

__all__ = ["one_per_stream"]


class _OfStream(Protocol):
    def __init__(self, xmpp: BaseXMPP) -> None: ...


_T = TypeVar("_T", bound=_OfStream)


def one_per_stream(cls: type[_T], xmpp: BaseXMPP) -> _T:
    """The object of this class that belongs to the stream, created if there is none.

    It is an attribute of the stream, and so lives as long as the stream.
    """
    name = f"_xep_qos_{cls.__name__.lower()}"
    found = xmpp.__dict__.get(name)
    if found is None:
        found = xmpp.__dict__[name] = cls(xmpp)
    assert isinstance(found, cls)
    return found
