"""The element that was read is handed over; nobody can tell it from one read again."""

from __future__ import annotations

import asyncio
from functools import partial
from xml.etree import ElementTree as ET

import pytest
from slixmpp.stanza import Message

from qos.core.message.model import Incoming, Level
from qos.stream.wire import Wire
from qos.testing import friends, logged_in
from xep_qos import XEP_QOS, feed, stanza
from xep_qos.feed import ParsedMessages

#: Messages in a request, some of them with text around them.
MESSAGES = (
    "<message xmlns='jabber:client'><body>on</body></message>",
    "<message xmlns='jabber:client' to='a@b/c' from='d@e' id='1'/> tail",
    "<message xmlns='jabber:client' xml:lang='de'>a<body>b</body>c<x xmlns='u'/></message>",
    "<message xmlns='jabber:client'><x xmlns='u' xmlns:p='v' p:y='&#10;&lt;'>&amp;<z/></x></message>",
)


def read(text: str) -> tuple[str, ET.Element]:
    """The payload, and the element that was read."""
    element = ET.fromstring(f"<x>{text}</x>")[0]  # noqa: S314
    return stanza.embedded(element), element


def incoming(payload: str) -> Incoming:
    return Incoming(
        key="k",
        msg_id="m",
        source="alice@localhost/a",
        to="bob@localhost/b",
        level=Level.ASSURED,
        payload=payload,
        size=len(payload),
        received_at=0.0,
        changed_at=0.0,
    )


def flat(root: ET.Element) -> list[object]:
    return [
        (each.tag, dict(each.attrib), each.text or "", each.tail or "", len(each))
        for each in root.iter()
    ]


@pytest.mark.parametrize("text", MESSAGES)
async def test_a_kept_element_is_as_one_that_is_read_again(text: str) -> None:
    """Which one it is depends on what else has come: nobody may depend on that."""
    async with friends("bob") as server, logged_in(server, "bob/b") as bob:
        payload, element = read(text)
        parsed = ParsedMessages()
        parsed.keep(payload, element)
        taken = parsed.take(incoming(payload))
        again = XEP_QOS.of(bob)._endpoint._wire.message(incoming(payload)).xml
        assert taken is element
        assert flat(taken) == flat(again)


def test_an_element_is_taken_once_and_only_for_its_own_payload() -> None:
    """A handler may change it; the next hand-over begins with what is stored."""
    payload, element = read(MESSAGES[0])
    parsed = ParsedMessages()
    parsed.keep(payload, element)
    same, _ = read(MESSAGES[0])
    assert same == payload
    assert same is not payload
    assert parsed.take(incoming(same)) is None
    assert parsed.take(incoming(payload)) is element
    assert parsed.take(incoming(payload)) is None
    assert parsed._chars == 0


def test_an_element_in_another_namespace_is_read_again() -> None:
    """Its text is in the namespace of messages, and the element is not."""
    payload, element = read("<message xmlns='urn:xmpp:qos'><body>on</body></message>")
    parsed = ParsedMessages()
    parsed.keep(payload, element)
    assert parsed.take(incoming(payload)) is None


def test_the_oldest_elements_make_room_for_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Elements take many times the memory of their texts, and a peer chooses both."""
    both = [read(MESSAGES[0]) for _ in range(5)]
    size = len(both[0][0])
    monkeypatch.setattr(feed, "_CHARS_MAX", 3 * size)
    parsed = ParsedMessages()
    for payload, element in both:
        parsed.keep(payload, element)
        assert parsed._chars <= 3 * size
    found = [parsed.take(incoming(payload)) for payload, _ in both]
    assert found == [None, None, *(element for _, element in both[2:])]
    parsed.keep("x" * 4 * size, both[0][1])
    assert parsed._chars == 0


@pytest.mark.parametrize("level", [Level.ASSURED, Level.ACKNOWLEDGED])
@pytest.mark.parametrize("chars_max", [feed._CHARS_MAX, 0])
async def test_a_message_is_handed_over_without_reading_its_text_if_that_is_possible(
    level: Level, chars_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And otherwise with it, which takes longer."""
    reads: list[Incoming] = []
    got: list[Message] = []
    make = Wire.message

    def message(wire: Wire, record: Incoming) -> Message:
        reads.append(record)
        return make(wire, record)

    monkeypatch.setattr(Wire, "message", message)
    monkeypatch.setattr(feed, "_CHARS_MAX", chars_max)
    async with (
        friends("alice", "bob") as server,
        logged_in(server, "alice/a") as alice,
        logged_in(server, "bob/b") as bob,
    ):
        bob.add_event_handler("message", got.append)
        send = partial(XEP_QOS.of(alice).send, "bob@localhost/b", "same", level=level)
        await send()
        await asyncio.gather(*(send() for _ in range(20)))  # mostly in batches
    assert [each["body"] for each in got] == ["same"] * 21
    assert [each["from"].full for each in got] == ["alice@localhost/a"] * 21
    assert [each["to"].full for each in got] == ["bob@localhost/b"] * 21
    assert len(reads) == (0 if chars_max else 21)
