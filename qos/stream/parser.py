"""Stanzas are handled as soon as their last byte has come, with every version of Expat.

From version 2.6 on (in Python 3.13, and in later releases of 3.11 and 3.12), Expat reads
a tag that came in pieces again only when twice as many bytes are there. On an XMPP
stream these bytes may never come: the peer may be waiting for the answer. This module
knows slixmpp's parser, but no stanzas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar
from xml.etree import ElementTree as ET

from slixmpp.basexmpp import BaseXMPP

__all__ = ["parse_at_once"]

_T = TypeVar("_T")


def parse_at_once(xmpp: BaseXMPP) -> None:
    """Let no parser of this stream, present or future, wait for more bytes.

    Without the method `flush` of the parser (Python 3.11.8, 3.12.2 and earlier)
    nothing changes.
    """
    if not hasattr(ET.XMLPullParser, "flush"):
        return
    make = xmpp.init_parser

    def init_parser() -> None:
        make()
        _flush_after_feed(xmpp)

    xmpp.init_parser = init_parser  # type: ignore[method-assign]
    _flush_after_feed(xmpp)


def _flush_after_feed(xmpp: BaseXMPP) -> None:
    parser: Any = xmpp.parser
    if parser is None:
        return
    feed, flush, read_events = parser.feed, parser.flush, parser.read_events

    def feed_and_flush(data: str | bytes) -> None:
        feed(data)
        try:
            flush()
        except ET.ParseError as error:
            # slixmpp expects an error where it reads the events, as `feed` gives it.
            parser.feed = feed
            parser.read_events = partial(_raise_after, read_events, error)

    parser.feed = feed_and_flush


def _raise_after(
    read_events: Callable[[], Iterable[_T]], error: ET.ParseError
) -> Iterator[_T]:
    yield from read_events()
    raise error
