"""The connection to a push target: it ends where the target answers without end.

aiohttp parses all that has come in one step, and takes informational answers (1xx) for as
long as they come. Here they are counted, and what has come is parsed in pieces, so that
little is parsed after the last answer that counts.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader

from qos.rest import bounds

__all__ = ["Endless", "parse_in_pieces"]

#: Bytes of what has come that are parsed at once.
_PIECE_BYTES: Final = 1024

_SWITCHING_PROTOCOLS = 101


class Endless(aiohttp.ClientError):
    """The target has sent too many informational answers to one request."""

    def __init__(self) -> None:
        most = bounds.PUSH_INFORMATIONAL_MAX
        super().__init__(f"more than {most} informational answers (1xx)")


def parse_in_pieces(connector: aiohttp.BaseConnector) -> None:
    """Let the connections that a connector makes be of the kind of this module."""
    loop = asyncio.get_running_loop()
    connector._factory = partial(_Answers, loop=loop)


class _Answers(ResponseHandler):
    """The answers of one target on one connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        #: Of the present request.
        self._informational = 0
        self._answered = False
        self._ended = False

    def set_response_params(self, **params: object) -> None:
        """Begin a request."""
        self._informational = 0
        self._answered = False
        super().set_response_params(**params)  # type: ignore[arg-type]  # passed on

    def data_received(self, data: bytes) -> None:
        """Parse what has come, until an answer is one too many."""
        # No data: aiohttp goes on with what it has kept.
        for start in range(0, max(len(data), 1), _PIECE_BYTES):
            if self._ended:
                return
            super().data_received(data[start : start + _PIECE_BYTES])

    def feed_data(
        self, data: tuple[RawResponseMessage, StreamReader], size: int = 0
    ) -> None:
        """Take an answer that has been parsed."""
        if self._ended:
            return
        code = data[0].code
        if self._answered:
            # Nobody has asked for a second answer; the first one counts.
            self._end()
        elif 100 <= code < 200 and code != _SWITCHING_PROTOCOLS:
            self._informational += 1
            if self._informational > bounds.PUSH_INFORMATIONAL_MAX:
                self._end()
                self.set_exception(Endless())
                return
            super().feed_data(data, size)
        else:
            self._answered = True
            super().feed_data(data, size)

    def _end(self) -> None:
        self._ended = True
        self.force_close()
        if self.transport is not None:
            self.transport.abort()
