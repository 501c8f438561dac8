"""Any stanza of a peer gets a correct, short answer or none, and raises no exception.

The stanzas are put together at random from our own vocabulary.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slixmpp import ClientXMPP, Iq, Message
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos.core.message.batch import BATCH_NAMESPACE
from qos.core.message.model import MARKS_NAMESPACE, NAMESPACES, OutgoingState, Route
from qos.testing.clients import close
from xep_qos import XEP_QOS

CLIENT = "jabber:client"
XML = "http://www.w3.org/XML/1998/namespace"
STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"

#: Parts of a well-formed request are likely, so that all later checks are reached.
CHARACTERS = st.one_of(
    st.sampled_from("'\"<>&\t\n\r{}/@ ]\x7f\u2028"),
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"),
)
VALUES = st.one_of(
    st.sampled_from(["1", "2", "s", "h", ""]),
    st.text(CHARACTERS, max_size=8),
    st.sampled_from(["x" * 1_024, "x" * 1_025, "'" * 3_000]),
)
SOURCES = st.sampled_from(
    ["alice@localhost/a", "alice@localhost/b", "alice@localhost", "localhost", "x/y"]
)
NAMES = st.sampled_from(
    ["assured", "deliver", "acknowledged", "received", "message", "body", "hold"]
)
SPACES = st.sampled_from([*NAMESPACES, CLIENT, MARKS_NAMESPACE, XML, "urn:x", ""])
ATTRIBUTES = st.dictionaries(
    st.sampled_from(
        [
            *("msgId", "to", "from", "type", "id", f"{{{XML}}}lang"),
            *(f"{{{MARKS_NAMESPACE}}}sender", f"{{{MARKS_NAMESPACE}}}hold"),
        ]
    ),
    VALUES,
    max_size=4,
)


@st.composite
def children(draw: st.DrawFn, depth: int = 2) -> ET.Element:
    namespace, name = draw(SPACES), draw(NAMES)
    element = ET.Element(f"{{{namespace}}}{name}" if namespace else name)
    element.attrib.update(draw(ATTRIBUTES))
    element.text = draw(st.none() | VALUES)
    if depth:
        element.extend(draw(st.lists(children(depth - 1), max_size=2)))
    return element


@st.composite
def requests(draw: st.DrawFn) -> ET.Element:
    """An iq whose child is mostly one of ours, and often well-formed."""
    iq = ET.Element(f"{{{CLIENT}}}iq", {"type": draw(st.sampled_from(TYPES))})
    iq.set("from", draw(SOURCES))
    iq.set("to", "bob@localhost/b")
    iq.set("id", draw(VALUES))
    kind = draw(st.sampled_from(["assured", "assured", "deliver", "acknowledged"]))
    request = ET.SubElement(iq, f"{{{draw(st.sampled_from(NAMESPACES))}}}{kind}")
    request.set("msgId", draw(st.sampled_from(["1", "2"])))
    request.attrib.update(draw(ATTRIBUTES))
    message = ET.SubElement(request, f"{{{CLIENT}}}message")
    message.extend(draw(st.lists(children(), max_size=2)))
    request.extend(draw(st.lists(children(), max_size=1)))
    iq.extend(draw(st.lists(children(), max_size=1)))
    return iq


TYPES = ["set", "set", "set", "set", "get", "result", "error", "nonsense"]


class Transport:
    """The part of a connection that the plugin uses."""

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, _name: str) -> None:
        return None


@contextlib.asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[tuple[ClientXMPP, list[str]]]:
    """A client that believes that it has a session, and everything that it writes."""
    client = ClientXMPP("bob@localhost/b", "")
    written: list[str] = []
    inner: Any = client
    inner.send_raw = written.append
    inner.transport = Transport()
    client.register_plugin("xep_qos", {"trust": "anyone", **options})
    client.event("session_start", {})
    await a_turn()
    # Our own question, for the roster.
    written.clear()
    try:
        yield client, written
    finally:
        inner.transport = None
        await close(client)


def receive(client: ClientXMPP, xml: ET.Element) -> None:
    client.recv_stanza(Iq(client, xml=xml))  # type: ignore[no-untyped-call]


async def a_turn() -> None:
    """Data written in one turn of the loop is sent at its end."""
    for _ in range(2):
        await asyncio.sleep(0)


def answers_in(written: list[str]) -> list[ET.Element]:
    """Everything that was written, as a peer's parser sees it."""
    text = "".join(written)
    return list(ET.fromstring(f"<stream xmlns='{CLIENT}'>{text}</stream>"))  # noqa: S314


@settings(
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(stanzas=st.lists(requests(), max_size=6))
async def test_no_stanza_of_a_peer_does_harm(stanzas: list[ET.Element]) -> None:
    """Each request gets at most one answer, to its sender, with its own id."""
    problems: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(context))
    async with listening(quota_messages=3, quota_bytes=10_000) as (client, written):
        for xml in stanzas:
            receive(client, xml)
        await a_turn()
        # slixmpp gives an id to an iq without one.
        asked = [(xml.get("from"), xml.get("id")) for xml in stanzas]
        # Sent as text; slixmpp's own answers go another way.
        replies = answers_in(written)
        assert len(replies) <= len(stanzas)
        for reply in replies:
            assert (reply.get("to"), reply.get("id")) in asked
            assert reply.get("type") in {"result", "error"}
            assert len(ET.tostring(reply)) < 64 * 1_024
            if reply.get("type") == "error":
                error = reply.find(f"{{{CLIENT}}}error")
                assert error is not None
                assert error[0].tag.startswith(f"{{{STANZAS}}}")
        held = list(XEP_QOS.of(client).store.incoming())
        assert len([record for record in held if record.payload]) <= 3
    assert not problems


@settings(max_examples=30)
@given(stanzas=st.lists(children(depth=3), max_size=4), kind=st.sampled_from(TYPES))
async def test_no_answer_of_a_peer_does_harm(
    stanzas: list[ET.Element], kind: str
) -> None:
    """An iq with an id that we wait for may contain anything."""
    problems: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(context))
    async with listening(retry_first_s=30) as (client, written):
        qos: Any = XEP_QOS.of(client)
        qos._endpoint.route = lambda _: Route("alice@localhost/a")
        delivery = await qos.submit(client.make_message("alice@localhost/a", "x"))
        await a_turn()
        (offer,) = answers_in(written)
        for xml_id in (offer.get("id", ""), "", "1"):
            xml = ET.Element(f"{{{CLIENT}}}iq", {"type": kind, "id": xml_id})
            xml.set("from", "alice@localhost/a")
            xml.extend(stanzas)
            receive(client, xml)
        await a_turn()
        # No answer names the message, so none says that it is held.
        assert not any("<deliver" in text for text in written)
        if delivery.ended:
            assert (await delivery.outcome()).status is OutgoingState.NOT_DELIVERED
            assert kind == "error"
    assert not problems


@st.composite
def batches(draw: st.DrawFn, names: st.SearchStrategy[str]) -> ET.Element:
    """Possible contents of a batch."""
    batch = ET.Element(f"{{{BATCH_NAMESPACE}}}batch")
    batch.attrib.update(draw(st.dictionaries(st.just("sender"), VALUES)))
    for index in range(draw(st.integers(0, 5))):
        child = draw(children())
        if draw(st.booleans()):
            child.tag = draw(names)
            child.set("id", draw(st.sampled_from([f"i{index}", f"i{index}", "i0"])))
            child.set("msgId", f"m{index}")
        batch.append(child)
    return batch


REQUEST_TAGS = st.sampled_from(
    [f"{{{NAMESPACES[0]}}}{name}" for name in ("assured", "acknowledged", "deliver")]
)
ANSWER_TAGS = st.sampled_from(
    [f"{{{BATCH_NAMESPACE}}}{name}" for name in ("received", "result", "error")]
)


@contextlib.contextmanager
def nothing_fails() -> Iterator[None]:
    """An exception that is caught at the edge is a bug all the same."""
    problems: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: problems.append(context))
    handler = logging.Handler(logging.ERROR)
    handler.emit = problems.append  # type: ignore[method-assign,assignment]
    logger = logging.getLogger("xep_qos")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    assert not problems


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(batch=batches(REQUEST_TAGS))
async def test_no_batch_of_a_peer_does_harm(batch: ET.Element) -> None:
    """Each request in it gets at most one answer, in the batch answer or by its id."""
    ids = {child.get("id") for child in batch}
    async with listening(quota_messages=3, quota_bytes=10_000) as (client, written):
        with nothing_fails():
            xml = ET.Element(f"{{{CLIENT}}}iq", {"type": "set", "id": "b"})
            xml.set("from", "alice@localhost/a")
            xml.append(batch)
            receive(client, xml)
        await a_turn()
        replies = answers_in(written)
        assert {reply.get("id") for reply in replies} <= {"b", *ids}
        assert len({reply.get("id") for reply in replies}) == len(replies)
        answered = [
            each.get("id")
            for reply in replies
            for each in reply.iterfind(f"{{{BATCH_NAMESPACE}}}batch/*")
        ]
        assert set(answered) <= ids
        assert len(answered) == len(set(answered))
        assert all(len(text.encode()) < 70 * 1_024 for text in written)
        held = list(XEP_QOS.of(client).store.incoming())
        assert len([record for record in held if record.payload]) <= 3


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(batch=batches(ANSWER_TAGS), kind=st.sampled_from(["result", "error"]))
async def test_no_answer_to_a_batch_does_harm(batch: ET.Element, kind: str) -> None:
    """It may contain anything, and concerns a request of ours or nothing."""
    async with listening(retry_first_s=30) as (client, written):
        qos: Any = XEP_QOS.of(client)
        qos._endpoint.route = lambda _: Route("alice@localhost/a")
        qos._endpoint._batches._supports = lambda *_: True
        message = client.make_message("alice@localhost/a", "x")
        deliveries = [await qos.submit(message) for _ in range(2)]
        await a_turn()
        (asked,) = answers_in(written)
        elements = list(asked[0])
        for answer in batch:
            # Some of them have the ids of our requests.
            number = answer.get("id", "")[1:]
            if number in {"0", "1"}:
                answer.set("id", elements[int(number)].get("id", ""))
                answer.set("msgId", elements[int(number)].get("msgId", ""))
        with nothing_fails():
            xml = ET.Element(f"{{{CLIENT}}}iq", {"type": kind})
            xml.set("id", asked.get("id", ""))
            xml.set("from", "alice@localhost/a")
            xml.append(batch)
            receive(client, xml)
            receive(client, xml)
            await asyncio.sleep(0)
        for delivery in deliveries:
            assert not delivery.ended or kind == "result"
        assert all(len(text.encode()) < 70 * 1_024 for text in written)


@pytest.mark.parametrize("kind", ["assured", "acknowledged"])
async def test_what_is_handed_over_is_what_was_held(kind: str) -> None:
    """Whatever a payload contains, the application gets it unchanged."""
    payload = (
        f"<message xmlns='{CLIENT}' xml:lang='x'><xml:odd xmlns:p='urn:p' p:a='1'>"
        "<in xmlns=''/>t</xml:odd><body> \r\n\t&lt;&#13;\u2028 </body></message>"
    )
    got: list[StanzaBase] = []
    async with listening() as (client, written):

        def put(message: Message) -> None:
            got.append(message)

        client.add_event_handler("message", put)
        for name in (kind, "deliver"):
            text = (
                f"<iq xmlns='{CLIENT}' type='set' id='1' from='a@b/c' to='d@e/f'>"
                f"<{name} xmlns='{NAMESPACES[0]}' msgId='1'>{payload}</{name}></iq>"
            )
            receive(client, ET.fromstring(text))  # noqa: S314
        await a_turn()
        assert len(answers_in(written)) == 2
        sent = ET.fromstring(payload)  # noqa: S314
        assert [
            (each.tag, each.text, each.tail, dict(each.attrib)) for each in got[0].xml
        ] == [(each.tag, each.text, each.tail, dict(each.attrib)) for each in sent]
        assert len(got) == 1


async def test_what_was_answered_is_sent_before_the_plugin_leaves() -> None:
    """Although it was to be sent together with the rest of this turn of the loop."""
    async with listening() as (client, written):
        for number in ("1", "2", "3"):
            text = (
                f"<iq xmlns='{CLIENT}' type='set' id='{number}' from='a@b/c' to='d@e/f'>"
                f"<assured xmlns='{NAMESPACES[0]}' msgId='{number}'>"
                f"<message xmlns='{CLIENT}'/></assured></iq>"
            )
            receive(client, ET.fromstring(text))  # noqa: S314
        assert written == []
        await XEP_QOS.of(client).aclose()
        assert [answer.get("id") for answer in answers_in(written)] == ["1", "2", "3"]


#: Requests whose messages are missing: whoever reads them finds that.
WITHOUT_MESSAGE = [
    f"<assured xmlns='{NAMESPACES[0]}' msgId='1'/>",
    f"<acknowledged xmlns='{NAMESPACES[0]}'/>",
    f"<batch xmlns='{BATCH_NAMESPACE}'><assured xmlns='{NAMESPACES[0]}' id='1' msgId='1'/></batch>",
]


@pytest.mark.parametrize("asked", WITHOUT_MESSAGE)
@pytest.mark.parametrize(
    ("trust", "expected"),
    [
        ("carol@localhost", "not-allowed"),
        (lambda _: False, "not-allowed"),
        ("alice@localhost", "bad-request"),
        (lambda _: True, "bad-request"),
    ],
    ids=["a stranger", "for the application", "trusted", "trusted by the application"],
)
async def test_the_message_of_a_stranger_is_not_read(
    asked: str, trust: object, expected: str
) -> None:
    """Reading costs time: it is first known whether the sender may send."""
    async with listening(trust=trust) as (client, written):
        text = (
            f"<iq xmlns='{CLIENT}' type='set' id='1' from='alice@localhost/a' "
            f"to='bob@localhost/b'>{asked}</iq>"
        )
        receive(client, ET.fromstring(text))  # noqa: S314 - ours
        await a_turn()
        conditions = {
            each.tag.rpartition("}")[2]
            for answer in answers_in(written)
            for each in answer.iter()
            if each.tag.startswith(f"{{{STANZAS}}}")
        } - {"text"}
        assert conditions == {expected}


async def test_an_application_that_decides_later_is_asked_once_for_each_message() -> (
    None
):
    """Then the message waits, within a bound, and is read before the answer."""
    asked: list[str] = []

    async def trust(sender: str) -> bool:
        asked.append(sender)
        await asyncio.sleep(0)
        return False

    for rule in (trust, lambda sender: trust(sender)):
        asked.clear()
        async with listening(trust=rule) as (client, written):
            for number in range(3):
                text = (
                    f"<iq xmlns='{CLIENT}' type='set' id='{number}' "
                    "from='alice@localhost/a' to='bob@localhost/b'>"
                    f"<assured xmlns='{NAMESPACES[0]}' msgId='{number}'>"
                    "<message><body>on</body></message></assured></iq>"
                )
                receive(client, ET.fromstring(text))  # noqa: S314 - ours
            for _ in range(3):
                await a_turn()
            assert "".join(written).count("<not-allowed") == 3
        assert asked == ["alice@localhost/a"] * 3
