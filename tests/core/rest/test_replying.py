"""Where replies go, and by what they are matched."""

from base64 import b64encode
from typing import Any

import pytest

from qos.core.queue.item import Item
from qos.core.queue.requests import PublishedItem, Refusal
from qos.core.rest.messages import reading_message
from qos.core.rest.replying import (
    CORRELATION_BYTES_MAX,
    correlation_of,
    read_correlation,
    split_reply_to,
    with_correlation,
)
from qos.steps import at_once

BASE, URL = "http://queue.example", "/queues/orders/messages"


def read_message(*args: Any, **options: Any) -> PublishedItem:
    return at_once(reading_message(*args, **options))


@pytest.mark.parametrize(
    ("header", "kept", "path"),
    [
        ("", "", None),
        ("</a>; rel=up", "</a>; rel=up", None),
        ("</queues/r>; rel=reply-to", "", "/queues/r"),
        (
            '</a>; rel=up, <http://QUEUE.example/queues/r>; rel="x reply-to"',
            '</a>; rel="up"',
            "/queues/r",
        ),
        ("<r>; rel=reply-to, <s>; rel=reply-to", "", "/queues/orders/r"),
        (
            "<https://queue.example/queues/r>; rel=reply-to",
            "<https://queue.example/queues/r>; rel=reply-to",
            None,
        ),
        ("<//queue.example/q>; rel=reply-to", "", "/q"),
        (
            "<http://queue.example.org/q>; rel=reply-to",
            "<http://queue.example.org/q>; rel=reply-to",
            None,
        ),
    ],
)
def test_the_link_to_this_service_is_taken_out(
    header: str, kept: str, path: str | None
) -> None:
    assert split_reply_to(header, BASE, URL) == (kept, path)


@pytest.mark.parametrize(
    ("href", "path"),
    [
        ("/mq/queues/r", "/queues/r"),
        ("http://queue.example/mq/queues/r", "/queues/r"),
        ("r", "/queues/orders/r"),
        # As the service itself has it, and what is none of its paths is told so.
        ("/queues/r", "/queues/r"),
        ("/other/r", "/other/r"),
        ("//queue.example/other/r", None),
        ("http://queue.example/queues/r", None),
    ],
)
def test_below_a_prefix_a_path_is_of_this_service(href: str, path: str | None) -> None:
    """A path that was passed on would be left out of the message that is taken."""
    header = f"<{href}>; rel=reply-to"
    kept = "" if path is not None else header
    assert split_reply_to(header, f"{BASE}/mq", URL) == (kept, path)


def test_a_service_without_a_name_knows_paths() -> None:
    assert split_reply_to("</q>; rel=reply-to", "", URL) == ("", "/q")


def test_a_link_that_is_no_url_is_refused() -> None:
    with pytest.raises(Refusal, match="reply-to: 'http://\\['"):
        split_reply_to("<http://[>; rel=reply-to", BASE, URL)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", "a"),
        ("ID:AMQP_ULONG:5", 5),
        ("é" * (CORRELATION_BYTES_MAX // 2), "é" * (CORRELATION_BYTES_MAX // 2)),
    ],
)
def test_a_correlation_id_is_read(text: str, value: str | int) -> None:
    assert read_correlation(text) == value


@pytest.mark.parametrize(
    "text", ["", "\n", "é" * CORRELATION_BYTES_MAX, "x" * (CORRELATION_BYTES_MAX + 1)]
)
def test_a_correlation_id_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match="correlation-id"):
        read_correlation(text)


def test_a_post_has_a_correlation_id() -> None:
    for query, properties in (
        ({"correlation-id": "a"}, {"JMSCorrelationID": "a"}),
        ({}, {}),
    ):
        read = read_message(b"", {}, query, item_id="i", now=0.0, bytes_max=100)
        assert read.properties == properties
    with pytest.raises(Refusal, match="correlation-id: 1 to"):
        read_message(b"", {}, {"correlation-id": ""}, item_id="i", now=0, bytes_max=9)


def requested(**properties: str | int) -> Item:
    return Item(
        seq=1,
        node="n",
        item_id="i",
        publisher="a@b",
        digest="d",
        size=1,
        published_at=0.0,
        available_at=0.0,
        properties=properties,
    )


def test_a_reply_is_matched_by_the_id_of_the_request() -> None:
    """Its correlation id, or its message id, or that of its item."""
    request = requested(JMSCorrelationID=5)
    assert correlation_of(request, "<x/>") == "ID:AMQP_ULONG:5"
    assert correlation_of(requested(), "<x/>") == request.item_id
    bare = b"\0Ss\xc0\x05\1\xa1\2ab\0Su\xa0\1x"
    coded = b64encode(bare).decode()
    payload = f"<message xmlns='xmpp-qos:amqp:0'>{coded}<body/></message>"
    assert correlation_of(requested(), payload) == "ab"
    assert correlation_of(requested(JMSCorrelationID="x" * 300), "<x/>") == ""


def test_a_url_has_the_id_in_its_query() -> None:
    assert with_correlation("/a", "b c&é") == "/a?correlation-id=b+c%26%C3%A9"
    assert with_correlation("/a", "") == "/a"
