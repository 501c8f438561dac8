"""Reading requests: XEP-0254's listings, edge cases of XEP-0060, hostile requests."""

import hashlib
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from qos.core.queue.item import Affiliation, ItemOutcome
from qos.core.queue.requests import (
    Affiliations,
    Configure,
    Create,
    DefaultConfig,
    Delete,
    GetConfigure,
    GetOptions,
    Items,
    Publish,
    PublishedItem,
    Purge,
    Refusal,
    Request,
    Requeue,
    Retract,
    SetAffiliations,
    SetOptions,
    Settlement,
    Subscribe,
    Subscriptions,
    Unlock,
    Unsubscribe,
)
from qos.steps import at_once
from xep_0254.requests import (
    is_request,
    parse_publish_message,
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


def form(*fields: tuple[str, str], form_type: str = "", kind: str = "submit") -> str:
    named = [("FORM_TYPE", form_type)] * bool(form_type) + list(fields)
    content = "".join(
        f"<field var='{var}'><value>{value}</value></field>" for var, value in named
    )
    return f"<x xmlns='jabber:x:data' type='{kind}'>{content}</x>"


def entry(item_id: str, payload: str) -> PublishedItem:
    digest = hashlib.sha256(payload.encode()).hexdigest()
    return PublishedItem(
        item_id=item_id, payload=payload, digest=digest, size=len(payload.encode())
    )


# -- the listings ----------------------------------------------------------


@pytest.mark.parametrize("stream", STREAMS)
def test_every_request_is_known_on_both_kinds_of_stream(stream: str) -> None:
    """The stream of a component has another namespace, and so have its iqs."""
    request = iq(f"<purge node='{NODE}'/>", of=OWNER, stream=stream)
    assert is_request(request)
    assert parse_request(request, new_id=counting()) == Purge(NODE)


def test_what_is_no_request_is_left_to_others() -> None:
    """The service answers only its own requests: no results, nothing without pubsub."""
    assert not is_request(iq("<purge/>", kind="result"))
    assert not is_request(iq("<purge/>", kind="error"))
    assert not is_request(iq("<purge/>", of="urn:other"))
    assert not is_request(iq("<purge/>", stream="urn:other"))


def test_subscribe_without_options_is_read_so() -> None:
    """Listing 1: the service must ask for the options."""
    request = parse(f"<subscribe jid='{BEE}' node='{NODE}'/>")
    assert request == Subscribe(NODE, BEE, None)


@pytest.mark.parametrize("var", ["pubsub#queue_requests", "queue_requests"])
@pytest.mark.parametrize("first", ["subscribe", "options"])
def test_subscribe_with_options_is_read(var: str, first: str) -> None:
    """Listing 2; the field has a prefix in the listings and none in the text."""
    subscribe = f"<subscribe jid='{BEE}' node='{NODE}'/>"
    fields = form((var, "5"), form_type=f"{PUBSUB}#subscribe_options")
    options = f"<options jid='{BEE}' node='{NODE}'>{fields}</options>"
    content = subscribe + options if first == "subscribe" else options + subscribe
    assert parse(content) == Subscribe(NODE, BEE, {"pubsub#queue_requests": "5"})


@pytest.mark.parametrize("options", ["<options/>", f"<options>{form()}</options>"])
def test_options_without_queue_requests_say_nothing_of_it(options: str) -> None:
    """No default is made up: the service asks for the field (listing 1)."""
    request = parse(f"<subscribe jid='{BEE}' node='{NODE}'/>{options}")
    assert isinstance(request, Subscribe)
    assert not request.options


def test_publish_is_read() -> None:
    """Listing 4."""
    request = parse(
        f"<publish node='{NODE}'><item id='{ID}'>\n{PAYLOAD}\n</item></publish>"
    )
    assert request == Publish(NODE, (entry(ID, PAYLOAD),))


@pytest.mark.parametrize("kind", ["get", "set"])
def test_retract_is_read(kind: str) -> None:
    """Listing 6 has an iq of type get, but means set."""
    request = parse(f"<retract node='{NODE}'><item id='{ID}'/></retract>", kind)
    assert request == Retract(NODE, (Settlement(item_id=ID),))


@pytest.mark.parametrize(
    ("value", "wanted"), [("true", True), (" 1 ", True), ("false", False), ("0", False)]
)
def test_a_retract_says_whether_an_event_is_wanted(value: str, wanted: bool) -> None:
    """XEP-0060 §7.2; without a word there is one, as XEP-0254 §2.3 has it."""
    request = parse(
        f"<retract node='{NODE}' notify='{value}'><item id='{ID}'/></retract>"
    )
    assert request == Retract(NODE, (Settlement(item_id=ID),), wanted)
    wrong = f"<retract node='{NODE}' notify='no'><item id='{ID}'/></retract>"
    assert refused(wrong) == malformed()


@pytest.mark.parametrize("kind", ["get", "set"])
@pytest.mark.parametrize("namespace", [QUEUEING, QUEUEING_OLD])
@pytest.mark.parametrize("item_namespace", ["", f" xmlns='{PUBSUB}'"])
def test_unlock_is_read(kind: str, namespace: str, item_namespace: str) -> None:
    """Listing 10 has an iq of type get; the items are in the namespace of unlock."""
    request = parse(
        f"<unlock xmlns='{namespace}' node='{NODE}'>"
        f"<item id='{ID}'{item_namespace}/></unlock>",
        kind,
    )
    released = Settlement(item_id=ID, outcome=ItemOutcome.RELEASED)
    assert request == Unlock(NODE, (released,))


# -- the other requests ----------------------------------------------------


def configured(*fields: tuple[str, str]) -> str:
    return form(*fields, form_type=f"{PUBSUB}#node_config")


REQUESTS: list[tuple[str, str, str, Request]] = [
    (f"<unsubscribe node='n' jid='{BEE}'/>", "set", PUBSUB, Unsubscribe("n", BEE)),
    (
        f"<unsubscribe node='n' jid='{BEE}' subid='s'/>",
        "set",
        PUBSUB,
        Unsubscribe("n", BEE, "s"),
    ),
    (f"<options node='n' jid='{BEE}'/>", "get", PUBSUB, GetOptions("n", BEE)),
    (
        f"<options node='n' jid='{BEE}' subid='s'>{form(('queue#batch', '2'))}</options>",
        "set",
        PUBSUB,
        SetOptions("n", BEE, {"queue#batch": "2"}, "s"),
    ),
    ("<items node='n'/>", "get", PUBSUB, Items(node="n")),
    (
        "<items node='n' max_items='3' q:state='dead'><item id='a'/><item id='b'/></items>",
        "get",
        PUBSUB,
        Items(node="n", item_ids=("a", "b"), max_items=3, state="dead"),
    ),
    (
        "<items node='n' max_items='3'/><set xmlns='http://jabber.org/protocol/rsm'>"
        "<max>2</max><after>a</after></set>",
        "get",
        PUBSUB,
        Items(node="n", max_items=2, after="a"),
    ),
    (
        "<items node='n'/><set xmlns='http://jabber.org/protocol/rsm'><max>0</max></set>",
        "get",
        PUBSUB,
        Items(node="n", max_items=0),
    ),
    ("<subscriptions/>", "get", PUBSUB, Subscriptions("")),
    ("<subscriptions node='n'/>", "get", PUBSUB, Subscriptions("n")),
    ("<subscriptions node='n'/>", "get", OWNER, Subscriptions("n", owner=True)),
    ("<affiliations/>", "get", PUBSUB, Affiliations("")),
    ("<affiliations node='n'/>", "get", PUBSUB, Affiliations("n")),
    ("<affiliations node='n'/>", "get", OWNER, Affiliations("n", owner=True)),
    (
        "<affiliations node='n'><affiliation jid='a@b' affiliation='owner'/>"
        "<affiliation jid='c@d' affiliation='none'/></affiliations>",
        "set",
        OWNER,
        SetAffiliations("n", {"a@b": Affiliation.OWNER, "c@d": Affiliation.NONE}),
    ),
    ("<create/>", "set", PUBSUB, Create("")),
    ("<create node='n'/><configure/>", "set", PUBSUB, Create("n")),
    (
        f"<create node='n'/><configure>{configured(('queue#ttl', '5'))}</configure>",
        "set",
        PUBSUB,
        Create("n", {"queue#ttl": "5"}),
    ),
    ("<default/>", "get", OWNER, DefaultConfig()),
    ("<configure node='n'/>", "get", OWNER, GetConfigure("n")),
    (
        f"<configure node='n'>{configured(('pubsub#access_model', 'open'))}</configure>",
        "set",
        OWNER,
        Configure("n", {"pubsub#access_model": "open"}),
    ),
    (
        f"<configure node='n'>{form(kind='cancel')}</configure>",
        "set",
        OWNER,
        Configure("n", {}),
    ),
    ("<delete node='n'/>", "set", OWNER, Delete("n")),
    ("<purge node='n'/>", "set", OWNER, Purge("n")),
    ("<q:requeue node='n'/>", "set", PUBSUB, Requeue("n")),
    (
        "<q:requeue node='n'><item id='a'/></q:requeue>",
        "set",
        PUBSUB,
        Requeue("n", ("a",)),
    ),
    (
        "<q:requeue node='n'/>"
        "<set xmlns='http://jabber.org/protocol/rsm'><after>7.9</after></set>",
        "set",
        PUBSUB,
        Requeue("n", after="7.9"),
    ),
]

#: Requests to read and requests to change, each with its own iq type.
BOTH = ("<options", "<configure", "<affiliations", "<subscriptions")


@pytest.mark.parametrize(("content", "kind", "of", "expected"), REQUESTS)
def test_a_request_is_read(content: str, kind: str, of: str, expected: Request) -> None:
    """XEP-0060, as far as a queue needs it, and our extensions."""
    assert parse(content, kind, of) == expected


@pytest.mark.parametrize(
    ("content", "kind", "of"),
    [(each[0], each[1], each[2]) for each in REQUESTS if not each[0].startswith(BOTH)],
)
def test_a_request_is_refused_in_an_iq_of_the_wrong_type(
    content: str, kind: str, of: str
) -> None:
    """A get that changes something, or a set that only reads, is a mistake."""
    assert refused(content, {"get": "set", "set": "get"}[kind], of) == malformed()


@pytest.mark.parametrize(
    ("content", "kind", "of", "expected"),
    [
        ("", "set", PUBSUB, malformed()),
        ("<create/><purge/>", "set", PUBSUB, malformed()),
        ("<create/><options/>", "set", PUBSUB, malformed()),
        ("<create/><configure/><configure/>", "set", PUBSUB, malformed()),
        ("<subscribe node='n'/>", "set", PUBSUB, malformed("jid-required")),
        (f"<subscribe jid='{BEE}'/>", "set", PUBSUB, malformed("nodeid-required")),
        (
            f"<subscribe node='n' jid='{'j' * 3072}'/>",
            "set",
            PUBSUB,
            malformed("invalid-jid"),
        ),
        ("<unsubscribe node='n'/>", "set", PUBSUB, malformed("jid-required")),
        (
            f"<unsubscribe node='n' jid='a' subid='{'s' * 2000}'/>",
            "set",
            PUBSUB,
            malformed("invalid-subid"),
        ),
        (
            f"<options node='n' jid='{BEE}'/>",
            "set",
            PUBSUB,
            malformed("invalid-options"),
        ),
        ("<configure node='n'/>", "set", OWNER, malformed("invalid-options")),
        ("<configure/>", "get", OWNER, malformed("nodeid-required")),
        (
            f"<configure node='n'>{form()}{form()}</configure>",
            "set",
            OWNER,
            malformed(),
        ),
        ("<configure node='n'><y/></configure>", "set", OWNER, malformed()),
        (
            f"<configure node='n'>{form(kind='result')}</configure>",
            "set",
            OWNER,
            malformed(),
        ),
        ("<delete/>", "set", OWNER, malformed("nodeid-required")),
        ("<subscriptions/>", "get", OWNER, malformed("nodeid-required")),
        ("<affiliations node='n'/>", "set", OWNER, malformed()),
        ("<affiliations node='n'/>", "set", PUBSUB, malformed()),
        ("<affiliations node='n'><a/></affiliations>", "set", OWNER, malformed()),
        ("<items/>", "get", PUBSUB, malformed("nodeid-required")),
        ("<items node='n' max_items='-1'/>", "get", PUBSUB, malformed()),
        ("<items node='n' max_items='many'/>", "get", PUBSUB, malformed()),
        ("<items node='n' q:state='gone'/>", "get", PUBSUB, malformed()),
        ("<items node='n'><item/></items>", "get", PUBSUB, malformed()),
        ("<subscriptions node='n'/>", "set", OWNER, missing("manage-subscriptions")),
        ("<default/>", "get", PUBSUB, missing("retrieve-default-sub")),
        ("<collection/>", "set", OWNER, missing("collections")),
        ("<what/>", "set", OWNER, missing("what")),
        ("<q:what/>", "get", PUBSUB, missing("what")),
        (f"<{'w' * 100}/>", "get", PUBSUB, missing("w" * 40)),
    ],
)
def test_a_malformed_or_unknown_request_is_refused(
    content: str, kind: str, of: str, expected: tuple[str, ...]
) -> None:
    """With the condition of XEP-0060; every request gets an answer."""
    assert refused(content, kind, of) == expected


@pytest.mark.parametrize(
    ("affiliation", "expected"),
    [
        ("jid='a@b' affiliation='king'", malformed()),
        ("jid='a@b'", malformed()),
        ("affiliation='owner'", malformed("jid-required")),
    ],
)
def test_an_affiliation_that_there_is_not_is_refused(
    affiliation: str, expected: tuple[str, ...]
) -> None:
    content = f"<affiliations node='n'><affiliation {affiliation}/></affiliations>"
    assert refused(content, "set", OWNER) == expected


@pytest.mark.parametrize("what", Affiliation)
def test_each_affiliation_can_be_given(what: Affiliation) -> None:
    """XEP-0060 §4.1: also to publish only, as the feature says."""
    each = f"<affiliation jid='a@b' affiliation='{what.value}'/>"
    content = f"<affiliations node='n'>{each}</affiliations>"
    expected = SetAffiliations("n", {"a@b": what})
    assert parse(content, "set", OWNER) == expected


def test_two_affiliations_for_one_account_are_refused() -> None:
    """It is not clear which of them should count."""
    each = "<affiliation jid='a@b' affiliation='owner'/>"
    content = f"<affiliations node='n'>{each}{each}</affiliations>"
    assert refused(content, "set", OWNER) == malformed()


@pytest.mark.parametrize(
    "page", ["<before/>", "<before>a</before>", "<index>3</index>"]
)
def test_pages_go_forward_only(page: str) -> None:
    """A refusal is better than another page than the requested one."""
    pages = f"<set xmlns='http://jabber.org/protocol/rsm'>{page}</set>"
    condition, kind, _, _ = refused(f"<items node='n'/>{pages}", "get")
    assert (condition, kind) == ("feature-not-implemented", "cancel")


@pytest.mark.parametrize(
    "page", ["<max/>", "<max>x</max>", f"<after>{'a' * 2000}</after>"]
)
def test_a_malformed_page_is_refused(page: str) -> None:
    pages = f"<set xmlns='http://jabber.org/protocol/rsm'>{page}</set>"
    assert refused(f"<items node='n'/>{pages}", "get") == malformed()


def test_an_iq_with_two_elements_is_refused() -> None:
    """RFC 6120 §8.2.3: one child."""
    request = iq("<create/>")
    request.append(ET.Element("{urn:other}extra"))
    assert is_request(request)
    with pytest.raises(Refusal, match="more than one element"):
        parse_request(request, new_id=counting())


def test_what_xml_cannot_carry_is_refused() -> None:
    """It cannot come over a stream, but a stanza object of the same process may have
    it.
    """
    request = iq("<publish node='n'><item id='a'><a xmlns='u'/></item></publish>")
    request[0][0][0][0].text = "\x00"
    with pytest.raises(Refusal, match="U\\+0000"):
        parse_request(request, new_id=counting())
    request[0][0][0][0].text = ""
    request[0][0][0].set("id", "\x01")
    with pytest.raises(Refusal, match="U\\+0001"):
        parse_request(request, new_id=counting())


def test_a_payload_may_be_nested_deeply() -> None:
    """Its sender chooses the depth; that must not end the process."""
    depth = 5000
    payload = "<a xmlns='u'>" + "<a>" * depth + "</a>" * depth + "</a>"
    request = parse(f"<publish node='n'><item id='i'>{payload}</item></publish>")
    assert isinstance(request, Publish)
    assert request.entries[0].payload.count("<a") == depth + 1


# -- publishing by a message -----------------------------------------------


def message(content: str, kind: str = "normal") -> ET.Element:
    return ET.XML(f"<message xmlns='jabber:client' type='{kind}'>{content}</message>")


def test_a_message_publishes_as_an_iq_does() -> None:
    """docs/design/queue.md §3.3.

    An assured message without an item id gets an id made from its own.
    """
    content = f"<publish node='n'><item>{PAYLOAD}</item></publish>"
    sent = message(f"<thread/><pubsub xmlns='{PUBSUB}'>{content}</pubsub>")
    request = parse_publish_message(sent, new_id=lambda: "derived")
    assert request == Publish("n", (entry("derived", PAYLOAD),))


@pytest.mark.parametrize(
    "content", ["", "<body>b</body>", f"<pubsub xmlns='{PUBSUB}'><create/></pubsub>"]
)
def test_another_message_publishes_nothing(content: str) -> None:
    assert parse_publish_message(message(content), new_id=counting()) is None


def test_a_publish_that_bounced_publishes_nothing() -> None:
    """An error contains the stanza that it is about.

    Its receiver would publish that.
    """
    content = f"<pubsub xmlns='{PUBSUB}'><publish node='n'><item/></publish></pubsub>"
    assert parse_publish_message(message(content, "error"), new_id=counting()) is None


@pytest.mark.parametrize(
    "content",
    ["<publish node='n'/>", "<publish><item/></publish>", "<publish/><create/>"],
)
def test_a_malformed_publish_in_a_message_is_refused(content: str) -> None:
    sent = message(f"<pubsub xmlns='{PUBSUB}'>{content}</pubsub>")
    with pytest.raises(Refusal):
        parse_publish_message(sent, new_id=counting())
