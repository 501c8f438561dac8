"""A stanza is handled as soon as its last byte has come, at a cost that is bounded."""

from __future__ import annotations

import logging
import math
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slixmpp import ClientXMPP

from qos.stream.gate import Gate
from qos.stream.parser import TOO_DEEP, TOO_LONG, StreamParser
from qos.testing.clients import new_client
from qos.xml_reading import DEPTH_MAX, NAMESPACE_BYTES_MAX
from waiting import until

HEADER = (
    b"<stream:stream xmlns='jabber:client' id='s1' version='1.0'"
    b" xmlns:stream='http://etherx.jabber.org/streams'>"
)
#: Elements without content, and with a long attribute: a parser sees one tag.
STANZAS = (
    b"<iq type='result' id='1'/>",
    b"<iq type='result' id='" + b"2" * 3_000 + b"'/>",
)


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> ClientXMPP:
    """Without a connection; the tests hand over what it receives.

    It is handled in one turn, however long that takes.
    """
    monkeypatch.setattr("qos.stream.turns._TURN_S", math.inf)
    client = new_client("alice@localhost/a", "secret", {})
    client.enable_plaintext = True
    return client


def takes(client: ClientXMPP) -> list[ET.Element]:
    """Give the client a gate; returns the stanzas that will have passed it."""
    taken: list[ET.Element] = []

    def take(xml: ET.Element) -> bool:
        taken.append(xml)
        return True

    Gate.of(client).pass_to(take, "{jabber:client}iq")
    return taken


def cuts(length: int) -> Iterator[int]:
    """Each cut of a short stanza, and some of a long one."""
    return iter(range(1, length, max(1, length // 50)))


@pytest.mark.parametrize("whole", STANZAS, ids=["short", "long"])
async def test_a_stanza_that_comes_in_two_pieces_is_handled_with_the_second(
    client: ClientXMPP, whole: bytes
) -> None:
    """Expat 2.6 would wait for more bytes, and its peer for an answer."""
    taken = takes(client)
    client.init_parser()
    client.data_received(HEADER)
    for cut in cuts(len(whole)):
        client.data_received(whole[:cut])
        assert taken == []
        client.data_received(whole[cut:])
        assert [each.get("id") for each in taken] == [whole.split(b"'")[3].decode()]
        taken.clear()


async def test_a_stream_that_has_begun_before_our_first_part_is_no_exception(
    client: ClientXMPP,
) -> None:
    """A plugin may be registered on a client that is connected."""
    client.init_parser()
    client.data_received(HEADER)
    taken = takes(client)
    client.data_received(STANZAS[0][:-1])
    client.data_received(STANZAS[0][-1:])
    assert len(taken) == 1


async def test_a_tag_that_is_wrong_ends_the_stream_with_its_last_byte(
    client: ClientXMPP, caplog: pytest.LogCaptureFixture
) -> None:
    """As slixmpp ends it when the tag comes in one piece."""
    taken = takes(client)
    client.init_parser()
    client.data_received(HEADER)
    wrong = b"<iq type='result' type='result' id='1'/>"
    client.data_received(STANZAS[0] + wrong[:-1])
    with caplog.at_level(logging.ERROR):
        client.data_received(wrong[-1:])
        assert [each.msg for each in caplog.records] == ["Parse error: %r"]
        client.data_received(STANZAS[0])
    assert {each.msg for each in caplog.records} == {"Parse error: %r"}
    assert len(taken) == 1


# -- what a stranger may cost -----------------------------------------------

LONG = "u" * 29_000


def read(*pieces: bytes) -> list[ET.Element]:
    """The stanzas that a parser gives out for these pieces of a stream."""
    parser, depth, stanzas = StreamParser(), 0, []
    for piece in pieces:
        parser.feed(piece)
        for event, element in parser.read_events():
            depth += 1 if event == "start" else -1
            if depth == 1 and event == "end":
                stanzas.append(element)
    return stanzas


KINDS = (
    b"<iq type='result' id='1'/>",
    b"<message to='a>b' from=\"x'>y\"><body>a &gt; b > c</body></message>",
    b"<iq><a xmlns='u:x'><b/><!-- > --><c>d<![CDATA[<x>]]></c></a></iq>",
    "<presence><status>äöü€</status></presence>".encode(),
    b"<iq></iq>",
    b"<iq>/></iq>",
    b"<iq><a/></iq>",
    b" ",
    b"\n",
)


@given(st.data(), st.sampled_from([100, 1024 * 1024]))
def test_a_stream_is_read_as_elementtree_reads_it_however_it_is_cut(
    data: st.DataObject, renewed_after: int
) -> None:
    """And though its parser is made anew, between any two stanzas."""
    stanzas = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=12))
    stream = HEADER + b"".join(stanzas)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(stream)), max_size=8)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("qos.stream.parser._BYTES_MAX", renewed_after)
        come = read(*(stream[a:b] for a, b in pairwise([0, *cuts, len(stream)])))
    root = ET.fromstring(stream + b"</stream:stream>")  # noqa: S314  # it is ours
    assert [shown(each) for each in come] == [shown(each) for each in root]


def shown(element: ET.Element) -> bytes:
    """An element as text, without what is behind it."""
    element.tail = None
    return ET.tostring(element)


@pytest.mark.parametrize("cut", [0, 100, 15_000, 29_300, 40_000])
def test_a_long_namespace_empties_its_stanza_and_no_other(cut: int) -> None:
    """ElementTree would write it into each name: 60 kB were 200 MB."""
    inner = "".join(f"<q:b{i}/>" for i in range(3_500))
    bomb = (
        "<iq type='set' id='7' from='x@y'>text"
        f"<a><p:a xmlns:p='urn:p' xmlns:q='{LONG}'>{inner}</p:a><z/></a></iq>"
    ).encode()
    tracemalloc.start()
    try:
        iq, after = read(HEADER, bomb[:cut], bomb[cut:] + STANZAS[0])
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert (iq.attrib, iq.text) == ({"type": "set", "id": "7", "from": "x@y"}, None)
    assert [each.tag for each in iq] == [TOO_LONG]
    assert after.get("id") == "1"


@pytest.mark.parametrize("rest", ["/>", "></message>", "><q:b/></message>"])
def test_a_stanza_that_has_a_long_namespace_itself_is_dropped(rest: str) -> None:
    """It has nothing that an answer could be sent to."""
    bad = f"<message xmlns:q='{LONG}' from='x@y'{rest}".encode()
    assert [each.get("id") for each in read(HEADER, bad, STANZAS[0])] == ["1"]
    assert [each.get("id") for each in read(HEADER + bad + STANZAS[0])] == ["1"]


@pytest.mark.parametrize(("more", "left"), [(0, ["a"]), (1, [TOO_LONG])])
def test_a_namespace_may_have_as_many_bytes_as_one_in_a_body(
    more: int, left: list[str]
) -> None:
    name = "é" * (NAMESPACE_BYTES_MAX // 2) + "u" * more
    (iq,) = read(HEADER + f"<iq><a q:x='1' xmlns:q='{name}'/></iq>".encode())
    assert [each.tag.removeprefix("{jabber:client}") for each in iq] == left


def test_a_long_namespace_in_a_text_is_a_text() -> None:
    text = f"<iq><a b='xmlns:q=\"{LONG}\"'>xmlns='{LONG}'</a></iq>".encode()
    ((child,),) = read(HEADER, text)
    assert child.text == f"xmlns='{LONG}'"


def test_a_stream_that_has_a_long_namespace_itself_is_broken() -> None:
    parser = StreamParser()
    parser.feed(HEADER[:-1] + f" xmlns:q='{LONG}'>".encode() + STANZAS[0])
    with pytest.raises(ET.ParseError, match="long namespace"):
        list(parser.read_events())


def test_names_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """ElementTree keeps each for the life of its parser, with its namespace."""
    monkeypatch.setattr("qos.stream.parser._BYTES_MAX", 20_000)
    parser, space = StreamParser(), "u" * NAMESPACE_BYTES_MAX
    parser.feed(HEADER)
    tracemalloc.start()
    try:
        for i in range(100):
            names = "".join(f"<q:b{i}-{j}/>" for j in range(100))
            parser.feed(f"<iq><a xmlns:q='{space}'>{names}</a></iq>")
            list(parser.read_events())
        assert tracemalloc.get_traced_memory()[0] < 2_500_000  # else 6 MB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "stanza",
    [b">" * 5_000_000, b"<a b='" + b">" * 5_000_000 + b"'/>"],
    ids=["in a text", "in an attribute"],
)
def test_a_sign_that_could_end_a_tag_is_not_looked_at_again_and_again(
    stanza: bytes,
) -> None:
    """Otherwise this would take hours, and each test has a limit."""
    assert len(read(HEADER, b"<message>", stanza, b"</message>")) == 1


@pytest.mark.parametrize("cut", [0, 40, 150, 500])
def test_a_stanza_that_is_too_deep_is_emptied_and_no_other(cut: int) -> None:
    """Whoever walks it would fail: 520 levels of a stranger ended a stream."""

    def nested(depth: int) -> bytes:
        return b"<iq id='%d'>" % depth + b"<a>" * (depth - 1) + b"</a>" * (depth - 1)

    stanzas = [
        nested(depth) + b"</iq>" for depth in (DEPTH_MAX, DEPTH_MAX + 1, 100_000)
    ]
    stream = b"".join([*stanzas, *STANZAS])
    come = read(HEADER, stream[:cut], stream[cut:])
    assert [each.get("id", "")[:6] for each in come] == [
        *("64", "65", "100000"),
        *("1", "222222"),
    ]
    children = [[child.tag for child in each] for each in come]
    deep = "{jabber:client}a"
    assert children == [[deep], [TOO_DEEP], [TOO_DEEP], [], []]


async def test_a_request_with_a_long_namespace_is_refused(client: ClientXMPP) -> None:
    """Its sender learns why; a message is dropped, and an answer goes on without it."""
    taken = takes(client)
    sent: list[str] = []
    client.send = lambda stanza, *_, **__: sent.append(str(stanza))  # type: ignore[method-assign]
    client._session_started = True
    Gate.of(client)._unlock({})
    client.init_parser()
    client.data_received(HEADER)
    for kind in ("iq type='set'", "iq type='result'", "message", "presence"):
        begin = f"<{kind} from='x@localhost/y' id='7'>"
        client.data_received(f"{begin}<a xmlns:q='{LONG}'/></{kind.split()[0]}>")
    await until(lambda: taken)
    assert [each.get("type") for each in taken] == ["result"]
    (refusal,) = sent
    assert "not-acceptable" in refusal
    assert f"more than {NAMESPACE_BYTES_MAX} bytes" in refusal
