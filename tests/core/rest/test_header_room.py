"""The room of headers, and the form of a message that does not fit into it."""

import pytest

from qos.core.rest.batches import Part, reading_batch
from qos.core.rest.header_room import (
    HEADERS_BYTES_MAX,
    headers_size,
    is_of_message,
    render_part,
    room_for_links,
    wants_part,
)
from qos.core.rest.link_header import Link, fitting
from qos.steps import at_once

LINK = Link("/queues/a", "queue")

#: nginx has one page of memory for them.
NGINX_BYTES = 4096


def test_the_headers_of_an_answer_stay_under_what_proxies_have() -> None:
    """With as much as the web server and a proxy add to them."""
    assert HEADERS_BYTES_MAX <= 3500 < NGINX_BYTES


def test_each_byte_of_a_header_counts() -> None:
    empty = headers_size({})
    assert headers_size({"A": "b"}) == empty + len("A: b\r\n")
    assert headers_size({"A": "ü"}) == empty + len("A: üü\r\n")
    shown = '</queues/a>; rel="queue"'
    assert headers_size({}, [LINK]) == empty + len(f"Link: {shown}\r\n")
    assert headers_size({}, []) == empty


def test_links_take_what_the_other_headers_leave() -> None:
    headers = {"Msg-Properties": "x" * 3000}
    for most in (headers, {}):
        links = fitting([LINK] * 200, room_for_links(most))
        assert headers_size(most, links) <= HEADERS_BYTES_MAX
        assert headers_size(most, [*links, LINK]) > HEADERS_BYTES_MAX


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("multipart/mixed", True),
        ("text/plain, Multipart/Mixed;q=0.5", True),
        (" multipart/mixed ; q=1", True),
        ("multipart/mixed;q=0.001", True),
        ("multipart/mixed;q=0", False),
        ("multipart/mixed; q = 0.00", False),
        ("*/*", False),
        ("multipart/*", False),
        ("application/json", False),
        ("", False),
    ],
)
def test_a_part_is_asked_for_by_its_name(accept: str, wanted: bool) -> None:
    """Most clients send */* without a thought."""
    assert wants_part(accept) is wanted


@pytest.mark.parametrize(
    ("name", "of_message"),
    [
        *((name, True) for name in ("Link", "Msg-Properties", "Msg-Hops")),
        *((name, True) for name in ("Content-Type", "Content-Disposition")),
        *((name, False) for name in ("Content-Security-Policy", "Cache-Control")),
        *((name, False) for name in ("Msg-Delivery-Count", "Expires", "msg-consumer")),
    ],
)
def test_what_a_publisher_has_said_is_in_the_part(name: str, of_message: bool) -> None:
    assert is_of_message(name) is of_message


def test_a_message_in_a_part_could_be_posted_as_a_batch() -> None:
    headers = {"Content-Type": "text/plain", "Msg-Properties": "a=1"}
    for body in (b"", b"1\r\n--x", bytes(range(256))):
        shown = render_part(headers, body, "b")
        (part,) = at_once(reading_batch(shown, "multipart/mixed; boundary=b"))
        assert part == Part(body, {k.lower(): v for k, v in headers.items()})
    (bare,) = at_once(
        reading_batch(render_part({}, b"1", "b"), "multipart/mixed; boundary=b")
    )
    assert bare == Part(b"1", {})
