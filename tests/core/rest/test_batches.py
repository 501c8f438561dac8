"""Batches: parts of multipart/mixed byte for byte, and entries of an Atom feed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.queue.requests import Refusal
from qos.core.rest.batches import (
    _SEARCHED_BYTES,
    ENTRY_ELEMENTS_MAX,
    PARTS_MAX,
    Part,
    reading_batch,
)
from qos.steps import at_once

MIXED = "multipart/mixed; boundary=next"


def read_batch(body: bytes, content_type: str) -> list[Part]:
    return at_once(reading_batch(body, content_type))


def mixed(*parts: bytes) -> bytes:
    return b"".join(b"--next\r\n" + part + b"\r\n" for part in parts) + b"--next--"


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5))
def test_parts_are_kept_byte_for_byte(bodies: list[bytes]) -> None:
    parts = [b"Content-Type: a/b\r\n\r\n" + body for body in bodies]
    assert read_batch(mixed(*parts), MIXED) == [
        Part(body, {"content-type": "a/b"}) for body in bodies
    ]


def test_a_part_has_its_own_headers_or_none() -> None:
    """RFC 2046 §5.1.1: preamble, padding and epilogue mean nothing."""
    body = (
        b"preamble\r\n--a b\t \r\nIdempotency-Key:  k \r\nPriority:\r\n\r\n1\r\n2"
        b"\r\n--a b\r\n\r\n--a\r\n--a b--\r\nepilogue\r\n--a b\r\n"
    )
    assert read_batch(body, 'Multipart/Mixed; x=y; Boundary="a b"') == [
        Part(b"1\r\n2", {"idempotency-key": "k", "priority": ""}),
        Part(b"--a", {}),
    ]


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        (b"", "multipart/mixed", "without a boundary"),
        (b"", MIXED, "no closing delimiter"),
        (mixed(), MIXED, "no message"),
        (mixed(b"\r\na")[:-2], MIXED, "no closing delimiter"),
        (b"--nextjunk\r\n\r\n--next--", MIXED, "does not end its line"),
        (b"--next", MIXED, "no closing delimiter"),
        (mixed(b"a"), MIXED, "a part begins with headers"),
        (mixed(b"a: " + b"x" * 33_000 + b"\r\n\r\n"), MIXED, "at most 32768 bytes"),
        (mixed(b"a\r\n\r\n"), MIXED, "NAME: VALUE"),
        (mixed(b"a b: c\r\n\r\n"), MIXED, "NAME: VALUE"),
        (b"<feed/>", "application/xml", "Atom}feed is expected"),
        (b"<feed", "application/atom+xml", "not well-formed"),
        (b"<?xml version='1.0' encoding='x'?><a/>", "application/xml", "not well-formed"),
        (b"<!DOCTYPE feed []><feed/>", "application/xml", "no DTD"),
        ("<!DOCTYPE feed []><feed/>".encode("utf-16"), "application/xml", "UTF-8"),
    ],
)  # fmt: skip
def test_another_batch_is_refused_with_what_is_wrong(
    body: bytes, kind: str, says: str
) -> None:
    with pytest.raises(Refusal) as caught:
        read_batch(body, kind)
    assert says in str(caught.value)
    assert caught.value.condition == "bad-request"


def test_another_media_type_is_named() -> None:
    with pytest.raises(Refusal, match="not 'text/plain'") as caught:
        read_batch(b"", "Text/plain; charset=utf-8")
    assert caught.value.condition == "unsupported-media-type"


def test_the_number_of_messages_is_bounded() -> None:
    many = [b"\r\n"] * PARTS_MAX
    assert len(read_batch(mixed(*many), MIXED)) == PARTS_MAX
    entries = feed("<content/>" for _ in many)
    assert len(read_batch(entries, "application/atom+xml")) == PARTS_MAX
    for body, kind in [
        (mixed(*many, b"\r\n"), MIXED),
        (feed(["<content/>"] * (PARTS_MAX + 1)), "application/atom+xml"),
    ]:
        with pytest.raises(Refusal, match="more than 1000 messages") as caught:
            read_batch(body, kind)
        assert caught.value.condition == "not-acceptable"


def feed(contents: object) -> bytes:
    assert hasattr(contents, "__iter__")
    entries = "".join(f"<entry>{each}</entry>" for each in contents)
    return f"<feed xmlns='http://www.w3.org/2005/Atom'>{entries}</feed>".encode()


@pytest.mark.parametrize(
    ("content", "kind", "body"),
    [
        ("<content>a &lt; ü</content>", "text/plain; charset=utf-8", "a < ü"),
        ("<content type='text'/>", "text/plain; charset=utf-8", ""),
        ("<content type='html'>&lt;p></content>", "text/html; charset=utf-8", "<p>"),
        ("<content type='text/csv'>1,2</content>", "text/csv", "1,2"),
        ("<content type='image/png'> iVBO\nRw== </content>", "image/png", b"\x89PNG"),
        (
            "<content type='application/x+xml'><x xmlns='u'>1</x></content>",
            "application/x+xml",
            "<x xmlns='u'>1</x>",
        ),
        (
            "<content type='xhtml'><div xmlns='http://www.w3.org/1999/xhtml'/></content>",
            "application/xhtml+xml",
            "<div xmlns='http://www.w3.org/1999/xhtml'/>",
        ),
    ],
)
def test_the_content_of_an_entry_is_a_message(
    content: str, kind: str, body: str | bytes
) -> None:
    """RFC 4287 §4.1.3.3."""
    expected = body.encode() if isinstance(body, str) else body
    (part,) = read_batch(feed([f"<title/>{content}"]), "application/atom+xml;type=feed")
    assert part == Part(expected, {"content-type": kind})


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("", "content of its own"),
        ("<content src='http://x/'/>", "content of its own"),
        ("<content><b/></content>", "type text has no elements"),
        ("<content type='image/png'>?</content>", "type 'image/png' is base64"),
        ("<content type='image/png'>ü</content>", "type 'image/png' is base64"),
    ],
)
def test_another_entry_is_refused(entry: str, says: str) -> None:
    with pytest.raises(Refusal) as caught:
        read_batch(feed([entry]), "application/atom+xml")
    assert says in str(caught.value)


@pytest.mark.parametrize("offset", [-12, -9, -1, 0, 1, 700_000])
def test_a_delimiter_is_found_wherever_a_step_ends(offset: int) -> None:
    """A step looks through a part of the body; a delimiter may lie across two of them."""
    body = b"x" * (_SEARCHED_BYTES + offset)
    first, second = read_batch(mixed(b"\r\n" + body, b"\r\nend"), MIXED)
    assert first.body == body
    assert second.body == b"end"


def test_what_is_no_entry_of_a_feed_is_passed_over() -> None:
    """Such as its title (RFC 4287 §4.1.1)."""
    body = feed(["<content>1</content>"]).replace(
        b"<entry>", b"<title>t</title><entry>"
    )
    (part,) = read_batch(body, "application/atom+xml")
    assert part.body == b"1"


@pytest.mark.parametrize("elements", [ENTRY_ELEMENTS_MAX, ENTRY_ELEMENTS_MAX + 1])
def test_the_elements_of_an_entry_are_bounded(elements: int) -> None:
    """Entry and content count as well; of another entry, anew."""
    inside = f"<a xmlns='u'>{'<b/>' * (elements - 3)}</a>"
    content = f"<content type='application/x+xml'>{inside}</content>"
    body = feed([content, "<content>2</content>"])
    if elements > ENTRY_ELEMENTS_MAX:
        with pytest.raises(Refusal, match="more than 50000 inside"):
            read_batch(body, "application/atom+xml")
    else:
        assert len(read_batch(body, "application/atom+xml")) == 2
