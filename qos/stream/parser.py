"""Reads a stream for slixmpp, so that a stanza costs no more than its bytes are worth.

With ElementTree's parser alone a stranger could do four things:

- It repeats a namespace in each name that it reads: 60 kB become 200 MB. Here a stanza
  with a long namespace is emptied; see `TOO_LONG`.
- It nests elements as deep as they come, and whoever walks them fails. Here a stanza that
  is too deep is emptied as well; see `TOO_DEEP`.
- It remembers each name that it has ever read. Here it is made anew, between two
  stanzas, when it has read much.
- From Expat 2.6 on (in Python 3.13, and in later releases of 3.11 and 3.12) it reads a
  tag that came in pieces again only when twice as many bytes are there. On a stream these
  bytes may never come: the peer may be waiting for the answer. Here it gets whole tags.

This module knows slixmpp's parser, but no stanzas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, TypeAlias, TypeVar
from xml.etree import ElementTree as ET
from xml.parsers import expat

from slixmpp.basexmpp import BaseXMPP

from qos.xml_reading import DEPTH_MAX, NAMESPACE_BYTES_MAX

__all__ = ["TOO_DEEP", "TOO_LONG", "StreamParser", "parse_safely"]

#: The only child that is left in a stanza that had a long namespace in it.
TOO_LONG = "{urn:xmpp:qos:stream}namespace-too-long"

#: The same of one that was nested too deeply.
TOO_DEEP = "{urn:xmpp:qos:stream}too-deep"

#: Bytes after which a parser is made anew.
_BYTES_MAX = 1024 * 1024

_TAG = re.compile(rb"""<(?:[^'">]++|'[^']*+'|"[^"]*+")*+>""")

_Event: TypeAlias = tuple[str, ET.Element]
_T = TypeVar("_T")


def parse_safely(xmpp: BaseXMPP) -> None:
    """Read this stream safely, from its next beginning on.

    A stream that has begun already keeps its parser: what is in it cannot be seen. It
    only waits for no more bytes, where Python can tell it so (the method `flush`).
    """
    make = xmpp.init_parser

    def init_parser() -> None:
        make()
        parser: Any = StreamParser()
        xmpp.parser = parser

    xmpp.init_parser = init_parser  # type: ignore[method-assign]
    if hasattr(xmpp.parser, "flush"):
        _flush_after_feed(xmpp.parser)


class StreamParser:
    """Has those methods of `XMLPullParser` that slixmpp calls.

    Attributes:
        is_broken: whether no more is read: the stream is no XML.
    """

    def __init__(self) -> None:
        self._begin()
        #: Up to the end of the tag that opens the stream; b"": it has not come.
        self._header = b""
        self._root: ET.Element | None = None
        self._events: list[_Event] = []
        self._error: ET.ParseError | None = None
        self.is_broken = False

    def _begin(self) -> None:
        self._parser: ET.XMLPullParser[Any] = ET.XMLPullParser(("start", "end"))
        self._watch = _Watch()
        #: What has come and is not parsed yet, from this byte of the stream on.
        self._came, self._at = bytearray(), 0

    def feed(self, data: str | bytes) -> None:
        """Read more of the stream."""
        if self.is_broken:
            return
        try:
            self._feed(data.encode() if isinstance(data, str) else data)
        except ET.ParseError as error:
            self._error, self.is_broken = error, True

    def read_events(self) -> Iterator[_Event]:
        """Give out what has been read; raises `ET.ParseError` after the last of it."""
        events, self._events = self._events, []
        return (
            iter(events) if self._error is None else _raise_after(events, self._error)
        )

    def _feed(self, data: bytes) -> None:
        self._came += data
        for mark, at, names in self._watch.read(data, renews=self._at > _BYTES_MAX):
            if mark is _Mark.STREAM:
                self._header = bytes(self._came[: self._end_of_tag(at)])
            elif mark is _Mark.CUT:
                self._parse(self._take(at - self._at))
                self._empty(*names)
            elif mark is _Mark.EMPTIED:
                self._take(self._end_of(names[0], at))
            else:
                self._parse(self._take(self._end_of(names[0], at)))
                self._feed(self._renew())
                return
        whole = self._watch.whole - self._at
        if whole == len(self._came):
            # The usual end of a read: nothing is left.
            chunk, self._came = self._came, bytearray()
            self._at += whole
        else:
            chunk = self._take(whole)
        if not self._watch.is_cut:
            self._parse(chunk)
        if self._watch.error is not None:
            raise ET.ParseError(str(self._watch.error))

    def _end_of_tag(self, at: int) -> int:
        match = _TAG.match(self._came, at - self._at)
        assert match is not None, "Expat has read it"
        return match.end()

    def _end_of(self, name: str, at: int) -> int:
        """Where an element ends: Expat tells the end of an empty one, else its end tag."""
        is_tag = self._came.startswith(f"</{name}".encode(), at - self._at)
        return self._end_of_tag(at) if is_tag else at - self._at

    def _take(self, count: int) -> bytearray:
        chunk = self._came[:count]
        del self._came[:count]
        self._at += count
        return chunk

    def _parse(self, data: bytes | bytearray) -> None:
        if self._root is not None:
            # slixmpp does so with the root that it knows.
            self._root.clear()
        self._parser.feed(data)
        events: Iterator[Any] = self._parser.read_events()
        self._events += events

    def _empty(self, sign: str, *names: str) -> None:
        """End the stanza that is open, with only the sign of why in it."""
        if not names:
            raise ET.ParseError("the stream itself has a long namespace")
        ends = "".join(f"</{name}>" for name in reversed(names[1:]))
        if ends:
            self._parse(ends.encode())
            stanza = self._events[-1][1]
            stanza.text = None
            stanza[:] = [ET.Element(sign)]

    def _renew(self) -> bytes:
        """Forget each name that has been read; returns what has not been parsed."""
        rest = bytes(self._came)
        self._begin()
        self._came += self._header
        self._watch.read(self._header)
        self._parser.feed(self._take(len(self._header)))
        started: Iterator[Any] = self._parser.read_events()
        ((_, self._root),) = started
        return rest


class _Mark(Enum):
    """A tag at which something is to be done."""

    STREAM = "opens the stream"
    CUT = "has a long namespace, or is too deep"
    EMPTIED = "ends the stanza that was cut"
    STANZA = "ends another stanza"


class _Watch:
    """Reads tags before ElementTree does, and remembers no more of them than names.

    Attributes:
        is_cut: whether the stanza that is open is to be emptied.
        whole: the bytes of the stream that are whole: up to a tag that goes on, or is
            wrong.
        error: what is wrong with the stream, if something is.
    """

    def __init__(self) -> None:
        self.is_cut = False
        self.whole = 0
        self.error: expat.ExpatError | None = None
        self._open: list[str] = []
        self._renews = False
        self._marks: list[tuple[_Mark, int, tuple[str, ...]]] = []
        self._expat = parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        at_once = getattr(parser, "SetReparseDeferralEnabled", None)
        if at_once is not None:
            at_once(False)

    def read(
        self, data: bytes, *, renews: bool = False
    ) -> list[tuple[_Mark, int, tuple[str, ...]]]:
        """Read on.

        Args:
            data: of the stream.
            renews: whether to mark the end of a stanza that has none.

        Returns:
            The marks, each with its place in the stream, and the names that it is about:
            the sign of why a stanza is cut, and what is open there; or the stanza that
            ends.
        """
        self._renews = renews
        try:
            self._expat.Parse(data, False)
        except expat.ExpatError as error:
            self.error = error
        self.whole = self._expat.CurrentByteIndex
        marks, self._marks = self._marks, []
        return marks

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if not self._open:
            self._mark(_Mark.STREAM)
        for attribute, value in attributes.items():
            if (
                attribute.startswith("xmlns")
                and len(value.encode()) > NAMESPACE_BYTES_MAX
            ):
                self._cut(TOO_LONG)
        # The stream is open, too.
        if len(self._open) > DEPTH_MAX:
            self._cut(TOO_DEEP)
        self._open.append(name)

    def _end(self, name: str) -> None:
        self._open.pop()
        if len(self._open) == 1:
            if self.is_cut:
                self.is_cut = False
                self._mark(_Mark.EMPTIED, name)
            elif self._renews:
                self._renews = False
                self._mark(_Mark.STANZA, name)

    def _cut(self, sign: str) -> None:
        if not self.is_cut:
            self.is_cut = True
            self._mark(_Mark.CUT, sign, *self._open)

    def _mark(self, mark: _Mark, *names: str) -> None:
        self._marks.append((mark, self._expat.CurrentByteIndex, names))


def _flush_after_feed(parser: Any) -> None:
    feed, flush, read_events = parser.feed, parser.flush, parser.read_events

    def feed_and_flush(data: str | bytes) -> None:
        feed(data)
        try:
            flush()
        except ET.ParseError as error:
            # slixmpp expects an error where it reads the events, as `feed` gives it.
            parser.feed = feed
            parser.read_events = partial(_events_and_error, read_events, error)

    parser.feed = feed_and_flush


def _events_and_error(
    read_events: Callable[[], Iterable[_T]], error: ET.ParseError
) -> Iterator[_T]:
    return _raise_after(read_events(), error)


def _raise_after(events: Iterable[_T], error: ET.ParseError) -> Iterator[_T]:
    yield from events
    raise error
