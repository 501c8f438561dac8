"""HTTP messages as items: bodies byte for byte, XML readable, headers kept."""

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.contents import (
    BODY_NAMESPACE,
    JSON_TYPE,
    TEXT_TYPE,
    json_payload,
    text_payload,
)
from qos.core.queue.item import Item
from qos.core.queue.properties import Properties
from qos.core.queue.requests import PublishedItem, Refusal
from qos.core.rest.messages import (
    TIME_MS_MAX,
    reading_message,
    render_headers,
    render_message,
)
from qos.steps import at_once

NOW = 1_000_000.0


def read_message(*args: Any, **options: Any) -> PublishedItem:
    return at_once(reading_message(*args, **options))


def root_of(entry: PublishedItem) -> ET.Element:
    return ET.fromstring(entry.payload)  # noqa: S314 - ours


def read(
    body: bytes,
    content_type: str = "",
    query: dict[str, str] | None = None,
    *,
    bytes_max: int = 2000,
) -> PublishedItem:
    headers = {"content-type": content_type} if content_type else {}
    return read_message(
        body, headers, query or {}, item_id="i", now=NOW, bytes_max=bytes_max
    )


def item(entry: PublishedItem) -> Item:
    return Item(
        seq=1,
        node="n",
        item_id=entry.item_id,
        publisher="a@b",
        digest=entry.digest,
        size=entry.size,
        published_at=NOW,
        available_at=NOW,
        properties=entry.properties,
    )


def back(entry: PublishedItem) -> tuple[bytes, dict[str, str]]:
    return render_message(item(entry), entry.payload)


@given(
    st.binary(max_size=200),
    st.sampled_from(["", "text/plain", "application/xml", 'a/b;c="&<\'"']),
)
def test_a_body_comes_back_byte_for_byte(body: bytes, content_type: str) -> None:
    kind = content_type or "application/octet-stream"
    entry = read(body, content_type)
    assert root_of(entry).tag
    assert back(entry) == (body, {"content-type": kind})


JSON_BODIES = [b'{"n": 1}', '["\u00fc\n"]'.encode(), b" 1 ", b"no json", b"<&"]


@pytest.mark.parametrize("body", JSON_BODIES)
@pytest.mark.parametrize("kind", ["application/json", "application/geo+json"])
def test_json_is_what_xmpp_calls_json(body: bytes, kind: str) -> None:
    """XEP-0335: XMPP workers read it as what a publisher by XMPP has written."""
    entry = read(body, kind)
    assert root_of(entry).tag == "{urn:xmpp:json:0}json"
    assert back(entry) == (body, {"content-type": kind})


@pytest.mark.parametrize("body", [b"", b" \n", b"1\r\n", b"\xff", b'"\0"', b"&" * 1000])
def test_json_that_xml_would_change_or_blow_up_is_bytes(body: bytes) -> None:
    entry = read(body, "application/json")
    assert root_of(entry).tag == f"{{{BODY_NAMESPACE}}}body"
    assert back(entry) == (body, {"content-type": "application/json"})
    assert len(entry.payload) < len(body) * 4 / 3 + 100


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (json_payload({"n": 1}), (b'{"n":1}', {"content-type": JSON_TYPE})),
        (text_payload("two words"), (b"two words", {"content-type": TEXT_TYPE})),
    ],
)
def test_json_and_texts_published_by_xmpp_have_their_type(
    payload: str, shown: tuple[bytes, dict[str, str]]
) -> None:
    it = replace(item(read(b"")), properties={})
    assert render_message(it, payload) == shown


ORDER = "<order xmlns='shop'><n>5</n></order>"


@pytest.mark.parametrize(
    "content_type",
    ["application/xml", "Text/XML; charset=UTF-8", "application/order+xml"],
)
@pytest.mark.parametrize(
    "body",
    [
        ORDER,
        '<order xmlns="shop" n="5"/>',
        "<s:order xmlns:s='shop'><s:n>ü</s:n></s:order>",
        "<order xmlns='shop'>a<b/>\n</order>",
    ],
)
def test_an_element_with_a_namespace_is_the_payload_itself(
    body: str, content_type: str
) -> None:
    """XMPP workers read it as any other, and it comes back as it was."""
    entry = read(body.encode(), content_type)
    assert entry.payload == body
    assert back(entry) == (body.encode(), {"content-type": content_type})


@pytest.mark.parametrize(
    ("body", "readable"),
    [
        ("<order><n>5</n></order>", "<order xmlns=''><n>5</n></order>"),
        (f"<?xml version='1.0'?>\n{ORDER}", ORDER),
        (f"{ORDER}\n", ORDER),
        ("<s:o xmlns:s='shop'><n/></s:o>", "<o xmlns='shop'><n xmlns=''/></o>"),
        ("<o xmlns='shop'>\r\n</o>", "<o xmlns='shop'>\n</o>"),
        (f"<body xmlns='{BODY_NAMESPACE}'/>", "<body/>"),
        ("<message xmlns='xmpp-qos:amqp:0'/>", "<message xmlns='xmpp-qos:amqp:0'/>"),
        ("<json xmlns='urn:xmpp:json:0'/>", "<json xmlns='urn:xmpp:json:0'/>"),
    ],
)
def test_another_element_can_be_read_beside_its_bytes(body: str, readable: str) -> None:
    """It would change its meaning or its bytes in a stanza."""
    entry = read(body.encode(), "application/xml")
    assert entry.payload.endswith(f"{readable}</body>")
    assert back(entry) == (body.encode(), {"content-type": "application/xml"})


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "application/xml"),
        (b"<a xmlns='u'><!-- c --></a>", "application/xml"),
        (b"<a xmlns='u'><?b c?></a>", "application/xml"),
        (b"<a", "application/xml"),
        (b" <a/>", "application/xml"),
        (b"<a xmlns='u'>\xff</a>", "application/xml"),
        (b"<a xmlns='u'/>", "application/xml; charset=iso-8859-1"),
        (b"<a xmlns='u'/>", "text/plain"),
        (b"<a xmlns='u'/>", ""),
    ],
)
def test_what_is_no_plain_xml_is_bytes(body: bytes, content_type: str) -> None:
    entry = read(body, content_type)
    root = root_of(entry)
    assert (root.tag, len(root)) == (f"{{{BODY_NAMESPACE}}}body", 0)
    assert back(entry)[0] == body


def test_an_element_that_cannot_be_rendered_is_not_beside_its_bytes() -> None:
    """A name with a colon in a namespace that is none: found by a parser only."""
    entry = read(b"<a xmlns:b='}'><b:c/></a>", "application/xml")
    assert len(root_of(entry)) == 0
    assert back(entry)[0] == b"<a xmlns:b='}'><b:c/></a>"


def test_headers_that_say_how_to_read_a_body_are_kept() -> None:
    """And selectors can read them, under HornetQ's names."""
    headers = {
        "content-type": "application/xml",
        "content-encoding": "gzip",
        "content-language": "de",
        "link": '</a>; rel="b"',
        "msg-properties": "colour=red, n=5",
        "x-other": "no",
    }
    entry = read_message(
        b"<a xmlns='u'/>", headers, {}, item_id="i", now=NOW, bytes_max=2000
    )
    assert entry.properties == {
        "http_content$type": "application/xml",
        "http_content$encoding": "gzip",
        "http_content$language": "de",
        "http_link": '</a>; rel="b"',
        "colour": "red",
        "n": 5,
    }
    # What is encoded is not read as XML.
    assert entry.payload.startswith("<body ")
    kept = ("content-type", "content-encoding", "content-language", "link")
    assert back(entry) == (
        b"<a xmlns='u'/>",
        {name: value for name, value in headers.items() if name in kept},
    )
    assert render_headers(item(entry))["Msg-Properties"] == 'colour="red", n=5'


@pytest.mark.parametrize("value", ["x" * 1025, "a\r\nb: c", "ü", "a\0"])
def test_a_header_that_cannot_be_kept_is_refused(value: str) -> None:
    with pytest.raises(Refusal, match="content-type: at most 1024") as caught:
        read(b"", value)
    assert caught.value.condition == "bad-request"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("content-type", "a media type is expected"),
        ("content-encoding", "encodings are expected"),
        ("content-language", "language tags are expected"),
    ],
)
def test_a_header_that_a_client_could_take_for_a_link_is_refused(
    name: str, expected: str
) -> None:
    """And is not shown, if a store has one of earlier."""
    headers = {name: '<http://x>; rel="acknowledgement"'}
    with pytest.raises(Refusal, match=f"{name}: {expected}"):
        read_message(b"", headers, {}, item_id="i", now=NOW, bytes_max=2000)
    key = f"http_{name.replace('-', '$')}"
    it = replace(item(read(b"")), properties={key: headers[name]})
    assert name not in render_message(it, "")[1]


def test_properties_and_kept_headers_have_one_limit() -> None:
    names = ", ".join(f"a{n}" for n in range(64))
    headers = {"content-type": "a/b", "msg-properties": names}
    with pytest.raises(Refusal, match="with Content-Type: 65 properties"):
        read_message(b"", headers, {}, item_id="i", now=NOW, bytes_max=2000)


def test_a_message_that_is_too_large_is_refused() -> None:
    size = read(b"x" * 300).size
    assert read(b"x" * 300, bytes_max=size).size == size
    with pytest.raises(Refusal, match=f"takes {size} bytes") as caught:
        read(b"x" * 300, bytes_max=size - 1)
    assert caught.value.condition == "not-acceptable"


def test_the_query_has_priority_and_times_in_milliseconds() -> None:
    entry = read(
        b"", "", {"priority": "9", "ttl": "1500", "delay": "250", "durable": "false"}
    )
    assert (entry.priority, entry.ttl, entry.delay) == (9, 1.5, 0.25)
    plain = read(b"")
    assert (plain.priority, plain.ttl, plain.delay) == (None, None, 0.0)


def test_an_expiration_wins_over_a_ttl() -> None:
    at_ms = str(int(1000 * NOW) + 2500)
    assert read(b"", "", {"ttl": "1000", "expiration": at_ms}).ttl == 2.5


@pytest.mark.parametrize(
    "query",
    [
        {"priority": "10"},
        {"priority": "-1"},
        {"priority": ""},
        {"ttl": "0"},
        {"ttl": str(TIME_MS_MAX + 1)},
        {"ttl": "1.5"},
        {"delay": "x"},
        {"delay": "9" * 5000},
        {"expiration": str(int(1000 * NOW))},
        {"expiration": "1"},
    ],
)
def test_a_parameter_out_of_range_is_refused(query: dict[str, str]) -> None:
    (name,) = query
    with pytest.raises(Refusal, match=f"^{name}: .* is expected, not") as caught:
        read(b"", "", query)
    assert caught.value.condition == "bad-request"


@pytest.mark.parametrize(
    ("payload", "body"),
    [
        ("", b""),
        (ORDER, ORDER.encode()),
        (f"<body xmlns='{BODY_NAMESPACE}'>no base64</body>", None),
        (f"<a xmlns='{BODY_NAMESPACE}'/>", None),
    ],
)
def test_what_was_published_by_xmpp_is_xml(payload: str, body: bytes | None) -> None:
    it = replace(item(read(b"")), properties={})
    kind = {"content-type": "application/xml"} if payload else {}
    expected = payload.encode() if body is None else body
    assert render_message(it, payload) == (expected, kind)


def test_what_an_xmpp_client_has_put_into_a_header_cannot_do_harm() -> None:
    """It may choose any property, and any attribute of such an element."""
    payload = f"<body xmlns='{BODY_NAMESPACE}' content-type='a&#10;b'>eA==</body>"
    properties: Properties = {
        "http_link": "a\r\nSet-Cookie: b",
        "http_content$language": 5,
    }
    it = replace(item(read(b"")), properties=properties)
    kind = "application/octet-stream"
    assert render_message(it, payload) == (b"x", {"content-type": kind})


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ('</a>; rel="b"; type="c/d"', '</a>; rel="b"; type="c/d"'),
        ("</a>; rel=up, <x>; rel=acknowledgement", '</a>; rel="up"'),
        ("</a>; rel=reply-to, <b>; rel=reply-to, <//c>; rel=reply-to", None),
        ("<xmpp:a@b>; rel=reply-to", '<xmpp:a@b>; rel="reply-to"'),
        ("<http://x>; rel=reply-to-once", None),
        ('<x>; rel="b SELF", </a>; rel=b', '</a>; rel="b"'),
        ("<x>; rel=create-next", None),
        ("<x>; rel=consumer, <x>; REL=Poller, <x>; rel=generator", None),
        ('<x>; rel="b', None),
        (r'</a>; rel=b; type="c\", <x>; rel=\"self"', None),
        ("<http://x/;rel=self;y=z>; rel=up", None),
        ('<http://x>; rel="up;rel=self"', None),
        ('<http://x>; rel=up; type="a/b;rel=self"', None),
        ("<http://x/, a>; rel=up", None),
        ("x", None),
    ],
)
def test_a_publisher_gives_no_links_that_are_the_service_s_to_give(
    link: str, shown: str | None
) -> None:
    """A consumer would post its acknowledgement, and its password, to a stranger."""
    it = replace(item(read(b"")), properties={"http_link": link})
    assert render_message(it, "")[1].get("link") == shown


def test_an_empty_body_made_by_an_xmpp_client_is_empty() -> None:
    payload = f"<body xmlns='{BODY_NAMESPACE}' content-type='a/b'/>"
    it = replace(item(read(b"")), properties={})
    assert render_message(it, payload) == (b"", {"content-type": "a/b"})


def test_the_headers_tell_about_the_delivery() -> None:
    it = replace(
        item(read(b"")),
        token="t",  # noqa: S106 - of a delivery
        deadline=NOW + 60,
        expires_at=NOW + 3600,
        delivery_count=2,
        order=7,
        priority=9,
        properties={"xml.a": "x", "http_link": "y"},
    )
    assert render_headers(it) == {
        "Cache-Control": "no-store",
        "Last-Modified": "Mon, 12 Jan 1970 13:46:40 GMT",
        "Expires": "Mon, 12 Jan 1970 14:46:40 GMT",
        "Msg-Delivery-Count": "2",
        "Msg-First-Acquirer": "false",
        "Msg-Lock-Expires": "Mon, 12 Jan 1970 13:47:40 GMT",
        "Msg-Priority": "9",
    }
    assert render_headers(item(read(b"")))["Msg-First-Acquirer"] == "true"


def test_a_forwarded_message_says_how_often_it_was_forwarded() -> None:
    """It is a property of the item, and a header of its own again."""
    headers = {"msg-hops": "3", "msg-properties": "qos_hops=1, n=2"}
    entry = read_message(b"", headers, {}, item_id="i", now=NOW, bytes_max=2000)
    assert entry.properties == {"qos_hops": 3, "n": 2}
    shown = render_headers(replace(item(entry), properties=entry.properties))
    assert (shown["Msg-Hops"], shown["Msg-Properties"]) == ("3", "n=2")
    assert "Msg-Hops" not in render_headers(item(read(b"")))


@pytest.mark.parametrize("count", ["", "-1", "x", "10000", "1.5"])
def test_a_count_of_hops_that_is_none_is_refused(count: str) -> None:
    """It says what is expected."""
    with pytest.raises(Refusal, match="msg-hops: 0 to 9999 is expected"):
        read_message(b"", {"msg-hops": count}, {}, item_id="i", now=NOW, bytes_max=2000)
