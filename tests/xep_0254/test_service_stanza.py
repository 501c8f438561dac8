"""Answers of a service: XEP-0254's listings, XEP-0060's results, and pages."""

from collections.abc import Mapping
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from qos.core.queue.item import (
    Affiliation,
    Failure,
    Item,
    ItemOutcome,
    ItemState,
    Node,
    Subscription,
)
from qos.core.queue.results import (
    AffiliationsResult,
    ConfigureResult,
    CreateResult,
    ExtendResult,
    ItemsResult,
    Ok,
    OptionsResult,
    PublishResult,
    RequeueResult,
    Result,
    SubscribeResult,
    SubscriptionsResult,
)
from xep_0254 import client_answers
from xep_0254.forms import parse_form
from xep_0254.request_items import ITEM_BYTES_MAX
from xep_0254.service_stanza import render_result

PUBSUB = "http://jabber.org/protocol/pubsub"
OWNER = f"{PUBSUB}#owner"
STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"
RSM, DATA = "{http://jabber.org/protocol/rsm}", "{jabber:x:data}"
Q = "{xmpp-qos:queue:0}"
NODE = "a290fjsl29j19kjb"
BEE, SERVICE = "workerbee237@shakespeare.lit", "workflows.shakespeare.lit"
NOW = 1_700_000_000.0


REQUEST = ET.XML(f"<iq from='{BEE}/foo' id='sub2' to='{SERVICE}' type='set'/>")


def read(text: str, stream: str = "jabber:client") -> ET.Element:
    """The stanza as the receiver's parser sees it, in the namespace of the stream."""
    iq = ET.XML(f"<stream xmlns='{stream}'>{text}</stream>")[0]
    assert iq.tag == f"{{{stream}}}iq"
    return iq


def infoset(element: ET.Element) -> object:
    """The XML without the listings' white space and without the texts of errors."""
    children = [infoset(each) for each in element if each.tag != f"{{{STANZAS}}}text"]
    return element.tag, element.attrib, (element.text or "").strip(), children


def same(text: str, listing: str) -> bool:
    return infoset(read(text)) == infoset(read(listing))


# -- results: the listings -------------------------------------------------

SUBSCRIPTION = Subscription(
    node=NODE,
    jid=BEE,
    subid="ba49252aaa4f5d320c24d3766f0bdcade78c78d3",
    via=f"{BEE}/foo",
    queue_requests=5,
)


def result(
    value: Result,
    *,
    payloads: Mapping[int, str] | None = None,
    answer_bytes_max: int = 200 * 1024,
) -> str:
    return render_result(
        REQUEST,
        value,
        sender=SERVICE,
        payloads=payloads or {},
        answer_bytes_max=answer_bytes_max,
    )


def answered(value: Result, listing: str, of: str = PUBSUB) -> None:
    head = f"<iq from='{SERVICE}' id='sub2' to='{BEE}/foo' type='result'>"
    content = f"<pubsub xmlns='{of}' xmlns:q='xmpp-qos:queue:0'>{listing}</pubsub>"
    assert same(result(value), f"{head}{content}</iq>")


def test_a_subscription_is_answered_with_its_options() -> None:
    """Listing 3: the form of type result shows the options in force."""
    iq = read(result(SubscribeResult(SUBSCRIPTION)))
    x = iq.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}options/{DATA}x")
    assert x is not None
    form = parse_form(x)
    assert (form.type, form.form_type) == ("result", f"{PUBSUB}#subscribe_options")
    assert form.values == {
        "pubsub#queue_requests": ("5",),
        "queue#batch": ("1",),
        "queue#durable_locks": ("0",),
        "queue#resumable_locks": ("0",),
        "queue#new_worker": ("0",),
        "queue#events": ("message",),
        "queue#selector": ("",),
    }
    x.clear()
    assert infoset(iq) == infoset(
        read(
            f"""
<iq from='{SERVICE}' id='sub2' to='{BEE}/foo' type='result'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <subscription jid='{BEE}' node='{NODE}'
      subid='ba49252aaa4f5d320c24d3766f0bdcade78c78d3' subscription='subscribed'/>
    <options><x xmlns='jabber:x:data'/></options>
  </pubsub>
</iq>"""
        )
    )


def test_the_options_of_a_subscription_are_a_form_to_fill_in() -> None:
    """XEP-0060 §6.3.3."""
    options = read(result(OptionsResult(SUBSCRIPTION)))[0][0]
    assert options.tag == f"{{{PUBSUB}}}options"
    assert options.attrib == {"jid": BEE, "node": NODE, "subid": SUBSCRIPTION.subid}
    form = parse_form(options[0])
    assert form.type == "form"
    assert form.values["pubsub#queue_requests"] == ("5",)


@pytest.mark.parametrize("stream", ["jabber:client", "jabber:component:accept"])
def test_nothing_more_is_said_of_what_is_just_done(stream: str) -> None:
    """An empty result, in the namespace of the stream, whatever that is."""
    iq = read(render_result(REQUEST, Ok()), stream)
    assert iq.attrib == {"type": "result", "id": "sub2", "to": f"{BEE}/foo"}
    assert len(iq) == 0


def test_the_results_of_publishing_and_the_like_name_node_and_items() -> None:
    """XEP-0060 §7.1.2, §8.1.2, and our own requests."""
    answered(
        PublishResult("n<'", ("a", "b&")),
        "<publish node='n&lt;&apos;'><item id='a'/><item id='b&amp;'/></publish>",
    )
    answered(
        PublishResult("n", ("a", "b"), ("b",)),
        "<publish node='n'><item id='a'/><item q:repeated='true' id='b'/></publish>",
    )
    answered(CreateResult("made"), "<create node='made'/>")
    answered(
        ExtendResult("n", 1.5, ("a",)),
        "<q:extend node='n' seconds='1.5'><item id='a'/></q:extend>",
    )
    answered(
        RequeueResult("n", ("a", "b")),
        "<q:requeue node='n'><item id='a'/><item id='b'/></q:requeue>",
    )
    answered(RequeueResult("n", ()), "<q:requeue node='n'/>")
    answered(
        RequeueResult("n", ("a",), "7.9"),
        "<q:requeue node='n'><item id='a'/></q:requeue>"
        "<set xmlns='http://jabber.org/protocol/rsm'><last>7.9</last></set>",
    )


def test_subscriptions_are_listed() -> None:
    """XEP-0060 §5.6 and §8.8.1: for a subscriber and for an owner."""
    subscriptions = (SUBSCRIPTION, replace(SUBSCRIPTION, node="m", subid="s"))
    listed = (
        f"<subscription node='{NODE}' jid='{BEE}' subid='{SUBSCRIPTION.subid}' subscription='subscribed'/>"
        f"<subscription node='m' jid='{BEE}' subid='s' subscription='subscribed'/>"
    )
    answered(
        SubscriptionsResult("", subscriptions),
        f"<subscriptions>{listed}</subscriptions>",
    )
    answered(
        SubscriptionsResult(NODE, subscriptions[:1], owner=True),
        f"<subscriptions node='{NODE}'><subscription jid='{BEE}'"
        f" subid='{SUBSCRIPTION.subid}' subscription='subscribed'/></subscriptions>",
        OWNER,
    )


def test_affiliations_are_listed() -> None:
    """XEP-0060 §5.7 and §8.9.1: for an entity and for an owner."""
    affiliations = (("n", "a@b", Affiliation.OWNER), ("m", "a@b", Affiliation.OUTCAST))
    answered(
        AffiliationsResult("", affiliations),
        "<affiliations><affiliation node='n' affiliation='owner'/>"
        "<affiliation node='m' affiliation='outcast'/></affiliations>",
    )
    answered(
        AffiliationsResult("n", affiliations[:1], owner=True),
        "<affiliations node='n'><affiliation jid='a@b' affiliation='owner'/></affiliations>",
        OWNER,
    )


def test_configurations_are_forms_to_fill_in() -> None:
    """XEP-0060 §8.2.1 and §8.3, with the values in force or the defaults."""
    node = Node(name="n", identity="i", created_at=NOW, config={"queue#ttl": "7"})
    configure = read(result(ConfigureResult(node)))[0][0]
    assert (configure.tag, configure.get("node")) == (f"{{{OWNER}}}configure", "n")
    form = parse_form(configure[0])
    assert (form.type, form.form_type) == ("form", f"{PUBSUB}#node_config")
    assert form.values["queue#ttl"] == ("7",)
    assert form.values["queue#max_deliveries"] == ("5",)
    default = read(result(ConfigureResult(None)))[0][0]
    assert (default.tag, default.attrib) == (f"{{{OWNER}}}default", {})
    assert parse_form(default[0]).values["queue#ttl"] == ("",)


# -- browsing --------------------------------------------------------------

ITEM = Item(
    seq=7,
    node="n",
    item_id="a",
    publisher="p@example.org",
    digest="",
    size=0,
    published_at=NOW - 0.5,
    available_at=NOW,
)
HISTORY = (
    Failure(NOW - 9, "w@example.org/1", "failed"),
    Failure(NOW - 8, "", "expired"),
)
DEAD = replace(
    ITEM,
    state=ItemState.ARCHIVED,
    outcome=ItemOutcome.REJECTED,
    delivery_count=2,
    history=HISTORY,
)


def browse(*items: Item, owner: bool = False) -> list[ET.Element]:
    value = ItemsResult(node="n", items=items, count=len(items), now=NOW, owner=owner)
    text = result(value, payloads={7: "<x xmlns='u'/>"})
    return list(read(text)[0][0])


@pytest.mark.parametrize(
    ("item", "state"),
    [
        (ITEM, "available"),
        (replace(ITEM, available_at=NOW + 1), "delayed"),
        (replace(ITEM, state=ItemState.ACQUIRED, holder="w@example.org/1"), "acquired"),
        (
            replace(ITEM, state=ItemState.ARCHIVED, outcome=ItemOutcome.ACCEPTED),
            "accepted",
        ),
        (DEAD, "dead"),
    ],
)
def test_an_item_says_where_it_stands(item: Item, state: str) -> None:
    (element,) = browse(item)
    assert element.get(f"{Q}state") == state


def test_an_item_is_shown_with_all_that_is_known_of_it() -> None:
    """A dead letter as its owner sees it: where it died, why, and its holder."""
    letter = replace(DEAD, origin="orders", origin_id="o", holder="w@example.org/1")
    (element,) = browse(letter, owner=True)
    assert element.attrib == {
        "id": "a",
        "publisher": "p@example.org",
        f"{Q}state": "dead",
        f"{Q}priority": "4",
        f"{Q}delivery-count": "2",
        f"{Q}published": "2023-11-14T22:13:19.500000Z",
        f"{Q}holder": "w@example.org/1",
        f"{Q}origin": "orders",
        f"{Q}origin-id": "o",
        f"{Q}reason": "expired",
    }
    payload, history = element
    assert payload.tag == "{u}x"
    assert history.tag == f"{Q}history"
    assert [(each.tag, each.attrib) for each in history] == [
        (
            f"{Q}failure",
            {
                "at": "2023-11-14T22:13:11.000000Z",
                "by": "w@example.org/1",
                "reason": "failed",
            },
        ),
        (f"{Q}failure", {"at": "2023-11-14T22:13:12.000000Z", "reason": "expired"}),
    ]


def test_who_works_on_an_item_is_for_its_owner_to_know() -> None:
    """Anybody may browse an open node, but must not see the full JIDs of others."""
    (element,) = browse(replace(DEAD, holder="w@example.org/1"))
    assert "w@example.org/1" not in ET.tostring(element, "unicode")


def test_a_dead_letter_that_lives_shows_its_history_and_others_do_not() -> None:
    """In a dead-letter node the item is available, and its readers want to see why."""
    letter = replace(ITEM, origin="orders", origin_id="o", history=HISTORY)
    (shown,) = browse(letter)
    assert shown.find(f"{Q}history") is not None
    (living,) = browse(replace(ITEM, history=HISTORY))
    assert living.find(f"{Q}history") is None
    assert living.get(f"{Q}reason") == "expired"


def test_a_page_says_where_it_begins_and_ends_and_of_how_many() -> None:
    """XEP-0059 §2.2. Numbers are used instead of ids.

    So the next page is found even if the last item of a page is gone meanwhile.
    """
    items = (ITEM, replace(ITEM, item_id="b", seq=3))
    pubsub = read(result(ItemsResult(node="n", items=items, count=9, now=NOW)))[0]
    assert pubsub[0].attrib == {"node": "n"}
    page = pubsub[1]
    assert page.tag == f"{RSM}set"
    assert [(each.tag, each.text) for each in page] == [
        (f"{RSM}first", "7"),
        (f"{RSM}last", "3"),
        (f"{RSM}count", "9"),
    ]


def test_a_page_of_more_than_are_counted_has_no_count() -> None:
    """XEP-0059 §2.6 permits that; its reader knows that there may be more."""
    answer = read(result(ItemsResult(node="n", items=(ITEM,), count=None, now=NOW)))
    (rsm_set,) = answer.iter(f"{RSM}set")
    assert [each.tag for each in rsm_set] == [f"{RSM}first", f"{RSM}last"]
    page = client_answers.page(answer)
    assert (page.count, page.last, len(page.items)) == (None, "7", 1)


def test_an_empty_page_says_only_how_many_there_are() -> None:
    pubsub = read(result(ItemsResult(node="n", items=(), count=0, now=NOW)))[0]
    assert len(pubsub[0]) == 0
    assert [(each.tag, each.text) for each in pubsub[1]] == [(f"{RSM}count", "0")]


def test_items_over_the_limit_are_left_for_the_next_page() -> None:
    """Whole items only, and at least one.

    Otherwise a client could never get past it.
    """
    items = tuple(replace(ITEM, seq=n, item_id=str(n)) for n in range(9))
    payloads = dict.fromkeys(range(9), f"<x xmlns='u'>{'x' * 100}</x>")
    value = ItemsResult(node="n", items=items, count=9, now=NOW)
    for limit in (1, 900, 1000, 100_000):
        text = result(value, payloads=payloads, answer_bytes_max=limit)
        pubsub = read(text)[0]
        shown = [each.get("id") for each in pubsub[0]]
        assert shown == [str(n) for n in range(len(shown))]
        assert (len(shown) == 1) == (limit == 1)
        assert (len(shown) == 9) == (limit == 100_000)
        assert len(shown) == 1 or len(text.encode()) <= limit + 600
        assert pubsub.findtext(f"{RSM}set/{RSM}last") == shown[-1]
        assert pubsub.findtext(f"{RSM}set/{RSM}count") == "9"


def test_the_largest_item_fits_into_a_stanza() -> None:
    """Prosody accepts 256 KiB; workers choose the text and length of the history."""
    reason = "rejected: " + "'" * 200
    history = tuple(Failure(NOW + n, "w" * 2000, reason) for n in range(100))
    worst = replace(
        DEAD,
        item_id="'" * 1024,
        node="'" * 1024,
        origin="'" * 1024,
        origin_id="'" * 1024,
        holder="w" * 3071,
        history=history,
    )
    value = ItemsResult(node="n", items=(worst, worst), count=2, now=NOW, owner=True)
    payloads = {7: f"<a xmlns='u'>{'x' * (ITEM_BYTES_MAX - 17)}</a>"}
    text = result(value, payloads=payloads)
    assert len(text.encode()) < 256 * 1024
    items = read(text)[0][0]
    assert len(items) == 1
    shown = [each.get("at", "") for each in items[0][1]]
    assert 2 < len(shown) < 100
    assert shown == sorted(shown)
    # The first and the last failure are among them.
    assert shown[0].endswith("22:13:20.000000Z")
    assert shown[-1].endswith("22:14:59.000000Z")


@pytest.mark.parametrize(
    "value",
    [
        SubscriptionsResult("n", (SUBSCRIPTION,) * 50),
        SubscriptionsResult("n", (SUBSCRIPTION,) * 50, owner=True),
        AffiliationsResult("n", (("n", "a@b", Affiliation.MEMBER),) * 50),
        RequeueResult("n", ("a" * 50,) * 50),
    ],
)
def test_a_list_over_the_limit_is_cut_and_says_of_how_many(value: Result) -> None:
    """A larger answer would end the stream of the service.

    A silent cut would be false.
    """
    pubsub = read(result(value, answer_bytes_max=1000))[0]
    assert 0 < len(pubsub[0]) < 50
    assert pubsub.findtext(f"{RSM}set/{RSM}count") == "50"
