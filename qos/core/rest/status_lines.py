"""The status line of an answer, read from its bytes as they come (RFC 9112 §4).

An answer is decided by its status, also if its headers are cut off or cannot be read.
Informational answers (1xx) before it are passed over.
"""

from __future__ import annotations

import re

__all__ = ["STATUS_LINE_BYTES_MAX", "StatusReader"]

#: The bytes of a line of an answer.
STATUS_LINE_BYTES_MAX = 8 * 1024

_STATUS_LINE = re.compile(rb"HTTP/1\.[0-9] +([1-9][0-9]{2})(?: .*)?", re.DOTALL)

_SWITCHING_PROTOCOLS = 101


class StatusReader:
    """Reads the status of one answer.

    Attributes:
        status: of the answer; 0: it has not come, or cannot be read.
    """

    def __init__(self) -> None:
        """Begin before the first byte."""
        self.status = 0
        self._rest = b""
        self._in_headers = False
        self._lost = False

    def read(self, data: bytes) -> int:
        """Read more bytes; returns the status."""
        if self._is_over():
            return self.status
        self._rest += data
        while not self._is_over():
            line, newline, rest = self._rest.partition(b"\n")
            if not newline:
                self._lost = len(line) > STATUS_LINE_BYTES_MAX
                break
            self._rest = rest
            self._take(line.removesuffix(b"\r"))
        return self.status

    def _is_over(self) -> bool:
        return self._lost or self.status > 0

    def _take(self, line: bytes) -> None:
        """Take a line of an informational answer or of the last one."""
        if self._in_headers:
            self._in_headers = bool(line)
            return
        match = _STATUS_LINE.fullmatch(line)
        if match is None:
            self._lost = True
            return
        status = int(match[1])
        if status < 200 and status != _SWITCHING_PROTOCOLS:
            self._in_headers = True
        else:
            self.status = status
