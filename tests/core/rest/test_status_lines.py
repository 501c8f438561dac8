"""Status lines, in pieces of any size."""

import pytest

from qos.core.rest.status_lines import STATUS_LINE_BYTES_MAX, StatusReader

HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 200 OK\r\n", 200),
        (b"HTTP/1.1 204\r\n", 204),
        (b"HTTP/1.0 404 Not Found\n", 404),
        (b"HTTP/1.1 503 \xff\r\n", 503),
        (b"HTTP/1.1 101 Switching Protocols\r\n", 101),
        (HINTS + b"HTTP/1.1 201 Created\r\n", 201),
        (HINTS * 3 + b"HTTP/1.1 200 OK\r\nX", 200),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 500 \r\n", 200),
        (b"HTTP/1.1 200 OK", 0),
        (HINTS, 0),
        (b"HTTP/2 200 OK\r\n", 0),
        (b"HTTP/1.1 20 OK\r\n", 0),
        (b"HTTP/1.1 2000 OK\r\n", 0),
        (b"SSH-2.0-x\r\nHTTP/1.1 200 OK\r\n", 0),
        (b"\r\nHTTP/1.1 200 OK\r\n", 0),
        (b"x" * (STATUS_LINE_BYTES_MAX + 1) + b"\nHTTP/1.1 200 OK\r\n", 0),
        (b"", 0),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_the_first_answer_that_is_not_informational_has_the_status(
    answer: bytes, status: int, size: int
) -> None:
    reader = StatusReader()
    for start in range(0, max(len(answer), 1), size):
        reader.read(answer[start : start + size])
    assert reader.status == status
    # Nothing that comes later counts.
    if answer.endswith(b"\n"):
        reader.read(b"x\r\n")
        assert reader.read(b"HTTP/1.1 299 OK\r\n") == status


def test_a_line_without_an_end_is_given_up() -> None:
    reader = StatusReader()
    reader.read(b"HTTP/1.1 200 " + b"x" * STATUS_LINE_BYTES_MAX)
    assert reader.read(b"\r\n") == 0
