"""One connection of an HTTP client: when it ends, and what is said of what is no request."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from qos.rest import bounds

__all__ = ["HttpConnection"]

_NO_REQUEST = (
    "this is no request of HTTP/1.1 that can be read: its lines have at most "
    f"{bounds.LINE_BYTES_MAX} bytes, and it has at most {bounds.HEADERS_MAX} headers"
)


class HttpConnection(web.RequestHandler):
    """A connection of aiohttp that differs in two things.

    A client that sends no more may still read: it gets the answer to its request. Not if
    it takes a message: one that was killed looks the same, and the message would be
    locked for nobody.

    Attributes:
        answered: how many requests have been answered.
        takes: it takes a message.
        half_closed: the client sends no more.
    """

    __slots__ = ("answered", "half_closed", "takes")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """See aiohttp."""
        super().__init__(*arguments, **options)
        self.answered = 0
        self.takes = self.half_closed = False

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio has it
        """Whether the connection stays, though the client sends no more."""
        # TLS has no half of a connection.
        plain = self.transport is not None and not self.transport.get_extra_info(
            "sslcontext"
        )
        waits = self._request_count > self.answered
        self.half_closed = plain and waits and not self.takes
        return self.half_closed

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no request, in our words; the connection ends."""
        del exc, message
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        text = "an internal error" if status == 500 else _NO_REQUEST
        headers = {"Server": "xmpp-qos"}
        response = web.Response(status=status, headers=headers, text=f"{text}\n")
        response.force_close()
        return response
