"""The connection to a push target: how far a request has come, and no answer without end.

aiohttp parses all bytes that have come in one step, and takes informational answers (1xx)
for as long as they come. Here these are counted, the bytes are parsed in pieces, and
nothing is parsed after a second answer or after the bytes of a body that are read.

aiohttp does not say either whether a request has left, or on which connection, and tells
of no answer before all its headers have come. So each connection notes that for the
`Course` of its request (`qos.core.rest.push_progress`).
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader

from qos.core.rest.push_progress import Progress, Stage, Step
from qos.core.rest.status_lines import StatusReader
from qos.rest import bounds

__all__ = ["Course", "Endless", "course", "parse_in_pieces"]

#: Bytes of what has come that are parsed at once.
_PIECE_BYTES: Final = 1024

_SWITCHING_PROTOCOLS = 101


@dataclass(slots=True)
class Course:
    """The course of one request.

    Attributes:
        progress: as far as it has come.
    """

    progress: Progress = field(default_factory=Progress)

    @property
    def wants_new(self) -> bool:
        """Whether it is to be made on a new connection."""
        return self.progress.stage is Stage.AGAIN

    def then(self, step: Step) -> None:
        """Take a step."""
        self.progress = self.progress.then(step)

    def answered(self, status: int) -> None:
        """Note a status line."""
        self.progress = self.progress.answered(status)


#: That of the request in this task.
course: ContextVar[Course] = ContextVar("course")


class Endless(aiohttp.ClientError):
    """The target has sent too many informational answers to one request."""

    def __init__(self) -> None:
        most = bounds.PUSH_INFORMATIONAL_MAX
        super().__init__(f"more than {most} informational answers (1xx)")


def parse_in_pieces(connector: aiohttp.BaseConnector) -> None:
    """Let the connections that a connector makes be of the kind of this module."""
    factory = partial(_Answers, loop=asyncio.get_running_loop())
    connector._factory = factory  # type: ignore[assignment]  # it is a subclass


class _Answers(ResponseHandler):
    """The answers of one target on one connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        #: Of the present request.
        self._informational = 0
        self._answered = False
        #: Bytes that have come since its answer.
        self._body_bytes = 0
        self._ended = False
        self._requests = 0
        self._course = Course()
        self._reader = StatusReader()

    def is_connected(self) -> bool:
        """Whether the request in this task can have this connection."""
        exchange = course.get(None)
        wants_new = exchange is not None and exchange.wants_new
        return not wants_new and super().is_connected()

    def set_response_params(self, **params: object) -> None:
        """Begin a request."""
        self._informational = 0
        self._answered = False
        self._body_bytes = 0
        self._reader = StatusReader()
        self._course = course.get()
        if self.transport is not None and not self.transport.is_closing():
            # aiohttp writes next, and nothing else is done between.
            self._course.then(Step.REUSES if self._requests else Step.CONNECTS)
        self._requests += 1
        super().set_response_params(**params)  # type: ignore[arg-type]  # passed on

    def data_received(self, data: bytes) -> None:
        """Parse what has come, until an answer is one too many."""
        # No data: aiohttp goes on with what it has kept.
        for start in range(0, max(len(data), 1), _PIECE_BYTES):
            if self._ended:
                return
            piece = data[start : start + _PIECE_BYTES]
            if self._answered:
                self._body_bytes += len(piece)
            elif status := self._reader.read(piece):
                self._course.answered(status)
            if self._body_bytes > bounds.PUSH_ANSWER_BYTES_MAX:
                self._end()
                return
            super().data_received(piece)

    def feed_data(
        self, data: tuple[RawResponseMessage, StreamReader], size: int = 0
    ) -> None:
        """Take an answer that has been parsed."""
        if self._ended:
            return
        code = data[0].code
        if self._answered:
            # Nobody has asked for a second answer: the first one counts.
            self._end()
        elif 100 <= code < 200 and code != _SWITCHING_PROTOCOLS:
            self._informational += 1
            if self._informational > bounds.PUSH_INFORMATIONAL_MAX:
                self._end()
                self.set_exception(Endless())
            else:
                super().feed_data(data, size)
        else:
            self._answered = True
            super().feed_data(data, size)

    def _end(self) -> None:
        """Parse nothing more, and use the connection for no other request."""
        self._ended = True
        self.force_close()
        if self._payload is not None and not self._payload.is_eof():
            # The client waits for it, and closes the connection.
            self._payload.set_exception(aiohttp.ClientPayloadError("too long"))
        elif self.transport is not None:
            self.transport.abort()
