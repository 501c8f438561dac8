"""The items of a request: payloads, priorities and times, outcomes and tokens."""

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from qos.core.queue.item import ItemOutcome
from qos.core.queue.requests import (
    Extend,
    Publish,
    Refusal,
    Request,
    Retract,
    Settlement,
    Unlock,
)
from qos.steps import at_once
from xep_0254.elements import decimal, whole
from xep_0254.request_items import (
    IDS_BYTES_MAX,
    ITEM_BYTES_MAX,
    ITEM_ID_CHARS_MAX,
    ITEMS_MAX,
    REASON_CHARS_MAX,
    TOKEN_CHARS_MAX,
)
from xep_0254.requests import (
    NODE_CHARS_MAX,
    reading_request,
)

PUBSUB = "http://jabber.org/protocol/pubsub"
OWNER = f"{PUBSUB}#owner"
QUEUEING, QUEUEING_OLD = "urn:xmpp:pubsub:queueing:0", "urn:xmpp:queueing:0"
Q = "xmlns:q='xmpp-qos:queue:0'"
NODE, ID = "a290fjsl29j19kjb", "ae890ac52d0df67ed7cfd51b644e901"
BEE = "workerbee237@shakespeare.lit"
STREAMS = ("jabber:client", "jabber:component:accept")
PAYLOAD = "<example xmlns='urn:xmpp:example'>payload</example>"


def parse_request(iq: ET.Element, **options: Any) -> Request:
    return at_once(reading_request(iq, **options))


def iq(
    content: str, kind: str = "set", of: str = PUBSUB, stream: str = STREAMS[0]
) -> ET.Element:
    return ET.XML(
        f"<iq xmlns='{stream}' from='{BEE}/foo' id='i1' to='workflows.shakespeare.lit'"
        f" type='{kind}'><pubsub xmlns='{of}' {Q}>{content}</pubsub></iq>"
    )


def counting() -> Callable[[], str]:
    ids = iter(range(10_000))
    return lambda: f"made{next(ids)}"


def test_a_dear_payload_is_read_in_steps() -> None:
    """Others are served between them."""
    payload = f"<a xmlns='u'>{'<b/>' * 10_000}</a>"
    content = f"<publish node='n'><item>{payload}</item></publish>"
    steps = reading_request(iq(content), new_id=counting())
    assert sum(1 for _ in steps) >= 20


def parse(content: str, kind: str = "set", of: str = PUBSUB) -> Request:
    return parse_request(iq(content, kind, of), new_id=counting())


def refused(
    content: str, kind: str = "set", of: str = PUBSUB
) -> tuple[str, str, str, str]:
    with pytest.raises(Refusal) as caught:
        parse(content, kind, of)
    refusal = caught.value
    return refusal.condition, refusal.type, refusal.pubsub, refusal.feature


def malformed(pubsub: str = "") -> tuple[str, str, str, str]:
    return ("bad-request", "modify", pubsub, "")


def missing(feature: str) -> tuple[str, str, str, str]:
    return ("feature-not-implemented", "cancel", "unsupported", feature)


# -- items to publish ------------------------------------------------------


def test_several_items_are_published_at_once_and_nameless_ones_get_an_id() -> None:
    """XEP-0060's schema allows several items; ids not given are in the answer."""
    request = parse(
        f"<publish node='n' ><item q:priority='9' q:ttl='1.5' q:delay='0'/>"
        f"<item id='b' q:delay='2'>{PAYLOAD}</item></publish>"
    )
    assert isinstance(request, Publish)
    first, second = request.entries
    assert (first.item_id, first.payload, first.size) == ("made0", "", 0)
    assert (first.priority, first.ttl, first.delay) == (9, 1.5, 0.0)
    assert (second.item_id, second.priority, second.ttl, second.delay) == (
        "b",
        None,
        None,
        2,
    )


def test_the_same_content_has_the_same_digest_however_it_is_written() -> None:
    """Repeats are recognized by it, and servers change prefixes, quotes and order."""
    payloads = (
        "<a xmlns='u' b='1' c='2' xmlns:p='v' p:d='3'><e/></a>",
        "<x:a xmlns:x='u' xmlns:y='v' y:d='3' c=\"2\" b='1'><x:e></x:e></x:a>",
    )
    requests = [
        parse(f"<publish node='n'><item id='i'>{each}</item></publish>")
        for each in payloads
    ]
    assert requests[0] == requests[1]


@pytest.mark.parametrize(
    "payload",
    ["<a xmlns=''/>", "<a xmlns='' b='1'>x</a>", "<a xmlns=''><b xmlns='u'/></a>"],
)
def test_a_payload_without_a_namespace_stays_so(payload: str) -> None:
    """Otherwise it would get the namespace of the event that carries it."""
    request = parse(f"<publish node='n'><item id='i'>{payload}</item></publish>")
    assert isinstance(request, Publish)
    text = request.entries[0].payload
    assert ET.XML(f"<event xmlns='u'>{text}</event>")[0].tag == "a"


def test_a_payload_of_exactly_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    """The limit is in bytes as we write it: its event must fit into a stanza."""
    rest = ITEM_BYTES_MAX - len("<a xmlns='u'></a>")
    request = parse(
        f"<publish node='n'><item><a xmlns='u'>{'x' * rest}</a></item></publish>"
    )
    assert isinstance(request, Publish)
    assert request.entries[0].size == ITEM_BYTES_MAX
    assert refused(
        f"<publish node='n'><item><a xmlns='u'>{'x' * (rest - 1)}é</a></item></publish>"
    ) == ("not-acceptable", "modify", "payload-too-big", "")


def test_the_limit_of_a_payload_is_an_argument() -> None:
    """A server may accept less than Prosody does."""
    request = iq(f"<publish node='n'><item>{PAYLOAD}</item></publish>")
    with pytest.raises(Refusal, match="over the limit of 10"):
        parse_request(request, new_id=counting(), item_bytes_max=10)


@pytest.mark.parametrize(
    "priority", ["-1", "10", "", "x", "4.0", "٣", "1e0", "9" * 5000]
)
def test_a_priority_out_of_range_is_refused(priority: str) -> None:
    assert (
        refused(f"<publish node='n'><item q:priority='{priority}'/></publish>")
        == malformed()
    )


@pytest.mark.parametrize(
    "value",
    [
        "-1",
        "",
        "x",
        "nan",
        "inf",
        "-0.1",
        "1_0",
        "0x1",
        "1e400",
        "9" * 400,
        "315360000.000001",
    ],
)
@pytest.mark.parametrize("name", ["ttl", "delay"])
def test_a_time_that_is_none_is_refused(name: str, value: str) -> None:
    """Not a number, not finite, negative, or later than anybody can mean."""
    assert (
        refused(f"<publish node='n'><item q:{name}='{value}'/></publish>")
        == malformed()
    )


def test_ten_years_are_the_longest_time_of_an_item_and_a_week_of_an_extension() -> None:
    """The documented limits, written out.

    A test that reads them from the code proves nothing.
    """
    request = parse(
        "<publish node='n'><item q:ttl='315360000' q:delay='315360000'/></publish>"
    )
    assert isinstance(request, Publish)
    assert (request.entries[0].ttl, request.entries[0].delay) == (315360000.0,) * 2
    request = parse(
        "<q:extend node='n' seconds='604800'><item id='a' q:token='t'/></q:extend>"
    )
    assert request == Extend("n", 604800.0, (("a", "t"),))


@pytest.mark.parametrize("read", [decimal, whole])
def test_a_number_has_forty_characters_at_most(
    read: Callable[[str], float | None],
) -> None:
    """Longer numbers cost time. Leading zeros and surrounding spaces are allowed."""
    assert read("0" * 39 + "7") == 7
    assert read(f" {'0' * 39}7 ") == 7
    assert read("0" * 40 + "7") is None


def test_an_item_that_is_good_for_no_time_is_refused() -> None:
    assert refused("<publish node='n'><item q:ttl='0'/></publish>") == malformed()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<publish><item/></publish>", malformed("nodeid-required")),
        ("<publish node=''><item/></publish>", malformed("nodeid-required")),
        ("<publish node='n'/>", malformed("item-required")),
        (
            "<publish node='n'><item><a/><b/></item></publish>",
            malformed("invalid-payload"),
        ),
        ("<publish node='n'><item>text</item></publish>", malformed("invalid-payload")),
        (
            "<publish node='n'><item><a/>text</item></publish>",
            malformed("invalid-payload"),
        ),
        (
            "<publish node='n'><item><xml:a/></item></publish>",
            malformed("invalid-payload"),
        ),
        ("<publish node='n'><item id=''/></publish>", malformed()),
        ("<publish node='n'><entry/></publish>", malformed()),
        ("<publish node='n'><item id='i'/><item id='i'/></publish>", malformed()),
        (
            "<publish node='n'><item/></publish><publish-options/>",
            missing("publish-options"),
        ),
        (
            f"<publish node='{'n' * (NODE_CHARS_MAX + 1)}'><item/></publish>",
            malformed(),
        ),
        (
            f"<publish node='n'><item id='{'i' * (ITEM_ID_CHARS_MAX + 1)}'/></publish>",
            malformed(),
        ),
        (
            f"<publish node='n'>{'<item/>' * (ITEMS_MAX + 1)}</publish>",
            ("not-acceptable", "modify", "max-items-exceeded", ""),
        ),
    ],
)
def test_a_malformed_publish_is_refused(
    content: str, expected: tuple[str, ...]
) -> None:
    """With the condition that XEP-0060 §7.1.3 has for it."""
    assert refused(content) == expected


def test_ids_of_the_longest_kind_are_taken() -> None:
    node, item_id = "n" * NODE_CHARS_MAX, "i" * ITEM_ID_CHARS_MAX
    request = parse(f"<publish node='{node}'><item id='{item_id}'/></publish>")
    assert isinstance(request, Publish)
    assert (request.node, request.entries[0].item_id) == (node, item_id)


def test_ids_of_too_many_bytes_together_are_refused() -> None:
    """Ids return in answers and events, where they must fit into a stanza.

    A larger stanza would end the stream of the whole service.
    """
    ids = [f"{number}{'ü' * 1000}" for number in range(40)]
    items = "".join(f'<item id="{each}"/>' for each in ids)
    assert len(items) < IDS_BYTES_MAX
    assert refused(f"<publish node='n'>{items}</publish>") == malformed()


# -- settlements -----------------------------------------------------------


def unlock(item: str) -> str:
    return f"<unlock xmlns='{QUEUEING}' node='n'>{item}</unlock>"


@pytest.mark.parametrize("kind", ["get", "set"])
def test_several_items_are_settled_with_their_tokens_and_outcomes(kind: str) -> None:
    request = parse(
        unlock(
            "<item id='a' q:token='t'/>"
            "<item id='b'><q:modified/></item>"
            "<item id='c'><q:modified delivery-failed='true' undeliverable-here='1'/></item>"
            "<item id='d'><q:modified delivery-failed='0' undeliverable-here='false'/></item>"
            f"<item id='e'><q:rejected> no <b>good</b>{'!' * 2000}</q:rejected></item>"
            "<item id='f'><q:modified delivery-failed='true'> no ink </q:modified></item>"
        ),
        kind,
    )
    assert isinstance(request, Unlock)
    a, b, c, d, e, f = request.settlements
    assert (f.outcome, f.delivery_failed) == (ItemOutcome.MODIFIED, True)
    assert f.reason == "no ink"
    assert a == Settlement(item_id="a", token="t", outcome=ItemOutcome.RELEASED)  # noqa: S106
    assert b == Settlement(item_id="b", outcome=ItemOutcome.MODIFIED)
    assert (c.delivery_failed, c.undeliverable_here) == (True, True)
    assert (d.outcome, d.delivery_failed, d.undeliverable_here) == (
        ItemOutcome.MODIFIED,
        False,
        False,
    )
    assert e.outcome is ItemOutcome.REJECTED
    assert e.reason == ("no good" + "!" * 2000)[:REASON_CHARS_MAX]


def test_several_items_are_retracted_and_notify_does_no_harm() -> None:
    """XEP-0060 §7.2 has the attribute; XEP-0254 decides who is notified."""
    request = parse(
        "<retract node='n' notify='1'><item id='a' q:token='t'/><item id='b'/></retract>"
    )
    assert isinstance(request, Retract)
    assert [(each.item_id, each.token) for each in request.settlements] == [
        ("a", "t"),
        ("b", ""),
    ]


LONG_ID = "i" * (ITEM_ID_CHARS_MAX + 1)
LONG_TOKEN = "t" * (TOKEN_CHARS_MAX + 1)


@pytest.mark.parametrize("kind", ["get", "set"])
@pytest.mark.parametrize(
    ("items", "pubsub"),
    [
        ("", "item-required"),
        ("<item/>", ""),
        ("<item id=''/>", ""),
        ("<item id='a'/><item id='a'/>", ""),
        ("<items id='a'/>", ""),
        ("<item xmlns='urn:other' id='a'/>", ""),
        (f"<item id='{LONG_ID}'/>", ""),
        (f"<item id='a' q:token='{LONG_TOKEN}'/>", ""),
        ("<item id='a'><released/></item>", ""),
    ],
)
def test_a_malformed_settlement_is_refused(kind: str, items: str, pubsub: str) -> None:
    """All or none: one bad item, and no item is changed."""
    assert refused(unlock(items), kind) == malformed(pubsub)
    assert refused(f"<retract node='n'>{items}</retract>", kind) == malformed(pubsub)


@pytest.mark.parametrize(
    "outcome",
    [
        "<q:modified/><q:rejected/>",
        "<q:modified/><q:modified/>",
        "<modified/>",
        "<q:accepted/>",
        "<q:modified delivery-failed='yes'/>",
        "<q:modified undeliverable-here=''/>",
    ],
)
def test_an_outcome_that_there_is_not_is_refused(outcome: str) -> None:
    assert refused(unlock(f"<item id='a'>{outcome}</item>")) == malformed()


def test_retract_and_unlock_need_a_node() -> None:
    assert refused("<retract><item id='a'/></retract>") == malformed("nodeid-required")
    assert refused(unlock("<item id='a'/>").replace("node='n'", "")) == malformed(
        "nodeid-required"
    )


@pytest.mark.parametrize("namespace", ["", " xmlns='xmpp-qos:queue:0'"])
def test_locks_are_extended_by_their_tokens(namespace: str) -> None:
    request = parse(
        f"<q:extend node='n' seconds='30'><item{namespace} id='a' q:token='t'/></q:extend>"
    )
    assert request == Extend("n", 30.0, (("a", "t"),))


@pytest.mark.parametrize(
    "content",
    [
        "<q:extend node='n' seconds='30'><item id='a'/></q:extend>",
        "<q:extend node='n' seconds='30'><item id='a' q:token=''/></q:extend>",
        "<q:extend node='n' seconds='0'><item id='a' q:token='t'/></q:extend>",
        "<q:extend node='n' seconds='-1'><item id='a' q:token='t'/></q:extend>",
        "<q:extend node='n' seconds='nan'><item id='a' q:token='t'/></q:extend>",
        "<q:extend node='n'><item id='a' q:token='t'/></q:extend>",
        "<q:extend node='n' seconds='604800.000001'><item id='a' q:token='t'/></q:extend>",
    ],
)
def test_an_extension_without_a_token_or_a_time_is_refused(content: str) -> None:
    """Without the token, a worker whose lock has ended would extend another worker's
    lock.
    """
    assert refused(content) == malformed()


def test_an_extension_needs_an_item() -> None:
    assert refused("<q:extend node='n' seconds='1'/>") == malformed("item-required")
