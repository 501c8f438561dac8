"""Malicious or broken peers: each gets an answer, and the others are served.

After each attack a worker still gets an item (`works`): nothing may end the stream on
which all nodes depend.
"""

import asyncio
from itertools import product
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

import pytest

from queue_service import (
    BAD_REQUEST,
    DATA,
    DISCO_INFO,
    DISCO_ITEMS,
    EAGER,
    EXTENSIONS,
    FORBIDDEN,
    NO_ROOM,
    NODE_CONFIG,
    NOT_FOUND,
    OWNER,
    PUBSUB,
    QUEUEING,
    SUBSCRIBE_OPTIONS,
    Peer,
    Refused,
    Served,
    item,
    peers,
    publish,
    pubsub,
    retract,
    unlock,
)
from raw_client import stanza

NODE = "orders"
TOO_BIG = Refused("modify", "not-acceptable", "payload-too-big")
TOO_MANY = Refused("modify", "not-acceptable", "max-items-exceeded")
Q = f"xmlns:q='{EXTENSIONS}'"

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def works(owner: Peer, worker: Peer, node: str = NODE) -> None:
    """Prove that an item is still delivered and accepted."""
    await worker.subscribe(node, 100)
    (item_id,) = await owner.publish(node, item(payload="works"))
    while True:
        one = await worker.item(node)
        await worker.done(retract(node, one.named))
        if one.id == item_id:
            return


# -- malformed requests ----------------------------------------------------


@pytest.mark.parametrize("kind", ["get", "set"])
async def test_what_is_no_request_is_a_bad_request(queues: Served, kind: str) -> None:
    """No child, two children, an unknown one, and one that only looks like a request."""
    one = f"<retract node='{NODE}'><item id='1'/></retract>"
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        for xmlns in (PUBSUB, OWNER):
            for content in ("", "text", one * 2, one + "<x xmlns='urn:x'/>"):
                refused = await bob.refused(pubsub(content, xmlns), kind)
                assert refused == BAD_REQUEST, content
        for content in ("<x xmlns='urn:x'/>", "<nonsense/>", "<pubsub/>"):
            refused = await bob.refused(pubsub(content), kind)
            assert refused == Refused(
                "cancel", "feature-not-implemented", "unsupported"
            )
        await works(alice, bob)


async def test_an_iq_without_one_child_is_a_bad_request(queues: Served) -> None:
    """RFC 6120 §8.2.3; discovery by a set, too, which slixmpp would never answer."""
    info, items = (f"<query xmlns='{each}'/>" for each in (DISCO_INFO, DISCO_ITEMS))
    async with peers(queues, "alice/a") as (alice,):
        for kind in ("get", "set"):
            for content in ("", "text", info + items, "<x xmlns='urn:x'/>" * 3):
                refused = await alice.refused(content, kind)
                assert refused == Refused("modify", "bad-request"), content
        for query in (info, items):
            assert await alice.refused(query, "set") == Refused("modify", "bad-request")
            await alice.done(query, "get")


async def test_an_unknown_request_is_refused(queues: Served) -> None:
    """RFC 6120 §8.4; a set with an error, too, which slixmpp would never answer."""
    unknown = ("<x xmlns='urn:x'/>", "<error/>", "<error type='cancel'/>")
    async with peers(queues, "alice/a") as (alice,):
        for kind, content in product(("get", "set"), unknown):
            refused = await alice.refused(content, kind)
            assert refused == Refused("cancel", "service-unavailable"), content
        # What slixmpp knows is still its own.
        await alice.done(f"<query xmlns='{DISCO_INFO}'/>", "get")


async def test_what_lacks_something_is_refused_by_name(queues: Served) -> None:
    """With XEP-0060's own conditions, where it has them."""

    def bad(pubsub_condition: str = "") -> Refused:
        return Refused("modify", "bad-request", pubsub_condition)

    table: tuple[tuple[str, str, Refused], ...] = (
        ("", "<publish><item/></publish>", bad("nodeid-required")),
        ("", "<publish node='{}'/>", bad("item-required")),
        ("", "<publish node='{}'><x/></publish>", bad()),
        (
            "",
            "<publish node='{}'><item><a/><b/></item></publish>",
            bad("invalid-payload"),
        ),
        ("", "<publish node='{}'><item>text</item></publish>", bad("invalid-payload")),
        ("", "<publish node='{}'><item id=''><a/></item></publish>", bad()),
        ("", "<subscribe jid='bob@localhost'/>", bad("nodeid-required")),
        ("", "<subscribe node='{}'/>", bad("jid-required")),
        ("", "<unsubscribe node='{}'/>", bad("jid-required")),
        ("", "<options node='{}' jid='bob@localhost'/>", bad("invalid-options")),
        ("", "<retract node='{}'/>", bad("item-required")),
        ("", "<retract><item id='1'/></retract>", bad("nodeid-required")),
        ("", "<retract node='{}'><item/></retract>", bad()),
        ("", "<retract node='{}'><item id=''/></retract>", bad()),
        ("", "<retract node='{}'><item id='1'/><item id='1'/></retract>", bad()),
        ("", "<retract node='{}'><item id='1'><x/></item></retract>", bad()),
        ("", f"<unlock xmlns='{QUEUEING}' node='{{}}'/>", bad("item-required")),
        (
            "",
            f"<unlock xmlns='{QUEUEING}'><item id='1'/></unlock>",
            bad("nodeid-required"),
        ),
        (
            "",
            f"<unlock xmlns='{QUEUEING}' node='{{}}'><item id='1'><q:modified/>"
            "<q:rejected/></item></unlock>",
            bad(),
        ),
        (
            "",
            f"<unlock xmlns='{QUEUEING}' node='{{}}'><item id='1'><q:accepted/></item>"
            "</unlock>",
            bad(),
        ),
        (
            "",
            f"<unlock xmlns='{QUEUEING}' node='{{}}'><item id='1'>"
            "<q:modified delivery-failed='maybe'/></item></unlock>",
            bad(),
        ),
        ("", "<q:extend node='{}'><item id='1' q:token='t'/></q:extend>", bad()),
        (OWNER, "<configure/>", bad("nodeid-required")),
        (OWNER, "<delete/>", bad("nodeid-required")),
        (OWNER, "<purge/>", bad("nodeid-required")),
        (OWNER, "<affiliations node='{}'/>", bad()),
    )
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await alice.affiliate(NODE, bob="owner")
        for xmlns, content, refusal in table:
            request = pubsub(content.format(NODE), xmlns or PUBSUB)
            assert await bob.refused(request) == refusal, content
        two = pubsub(f"<purge node='{NODE}'/>", OWNER) * 2
        await alice.publish(NODE, item("1"))
        assert await bob.refused(two) == BAD_REQUEST
        assert list(await alice.browse(NODE)) == ["1"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("priority", ("-1", "10", "1000000000", "high", "", "4.5", "²")),
        ("ttl", ("0", "-1", "1e999", "soon", "", "nan", "9" * 100)),
        ("delay", ("-1", "1000000000", "soon", "", "inf")),
    ],
)
async def test_a_bad_attribute_of_an_item_is_a_bad_request(
    queues: Served, name: str, values: tuple[str, ...]
) -> None:
    """It is never replaced by a default."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        for value in values:
            more = f"{Q} q:{name}='{value}'"
            refused = await alice.refused(publish(NODE, item("1", more=more)))
            assert refused == BAD_REQUEST, value
        assert await alice.browse(NODE) == {}


# -- too much --------------------------------------------------------------


async def test_an_item_that_is_too_large_is_refused(queues: Served) -> None:
    """Its event would not fit through a stream; the largest allowed item does."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        most = 200 * 1024 - len("<x xmlns='urn:x'></x>")
        for size, refused in ((most, False), (most + 1, True), (220_000, True)):
            content = f"<item id='1'><x xmlns='urn:x'>{'x' * size}</x></item>"
            answer = await alice.ask(publish(NODE, content))
            assert (answer.get("type") == "error") is refused, size
            if refused:
                assert Refused.of(answer) == TOO_BIG
        await bob.subscribe(NODE)
        assert len((await bob.item()).payload) == most
        await works(alice, bob)


async def test_names_have_an_end(queues: Served) -> None:
    """Node, item, token, subid, JID: long ones would be kept and repeated."""
    long, longer = "n" * 1024, "n" * 1025
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(long)
        await alice.publish(long, item(long))
        await bob.subscribe(long)
        one = await bob.item()
        assert one.id == long
        for content, xmlns in (
            (f"<create node='{longer}'/>", PUBSUB),
            (f"<delete node='{longer}'/>", OWNER),
            (f"<retract node='{long}'><item id='{longer}'/></retract>", PUBSUB),
            (f"<subscribe node='{longer}' jid='{bob.jid}'/>", PUBSUB),
            (
                f"<retract node='{long}'><item id='{long}' q:token='{longer}'/></retract>",
                PUBSUB,
            ),
        ):
            assert await bob.refused(pubsub(content, xmlns)) == BAD_REQUEST
        wrong = f"<publish node='{long}'><item id='{longer}'/></publish>"
        assert await alice.refused(pubsub(wrong)) == BAD_REQUEST
        assert await bob.refused(pubsub(wrong)) == FORBIDDEN
        for content in (
            f"<subscribe node='{long}' jid='{'j' * 4000}@localhost'/>",
            f"<unsubscribe node='{long}' jid='{bob.jid}' subid='{longer}'/>",
        ):
            refused = await bob.refused(pubsub(content))
            assert refused.condition == "bad-request"
        await bob.done(retract(long, one.named))
        await works(alice, bob, long)


async def test_a_request_with_an_id_without_end_harms_nobody(queues: Served) -> None:
    """An answer would have to repeat the id."""
    async with peers(queues, "alice/a", "bob/b", "mallory/m") as found:
        alice, bob, mallory = found
        await alice.create(NODE)
        for size in (1000, 100_000, 200_000):
            iq_id = "i" * size
            await mallory.send(
                f"<iq type='set' id='{iq_id}' to='{queues.jid}'>"
                f"{publish(NODE, item())}</iq>"
            )
        await mallory.synced()
        (answer,) = mallory.received(stanza("iq"))
        assert Refused.of(answer) == FORBIDDEN
        await works(alice, bob)


async def test_a_request_has_so_many_items_and_no_more(queues: Served) -> None:
    """All ids are repeated in the answer and in an event."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        ids = [str(number) for number in range(1000)]
        await alice.publish(NODE, *(item(each, "") for each in ids))
        too_many = [*ids, "1000"]
        wide = ["w" * 1000 + each for each in ids[:100]]
        for request, refusal in (
            (publish(NODE, *(item(each, "") for each in too_many)), TOO_MANY),
            (retract(NODE, *too_many), TOO_MANY),
            (unlock(NODE, *too_many), TOO_MANY),
            (publish(NODE, *(item(each, "") for each in wide)), BAD_REQUEST),
            (retract(NODE, *wide), BAD_REQUEST),
        ):
            assert await alice.refused(request) == refusal
        assert (await alice.stats(NODE))["available"] == "1000"
        await bob.subscribe(NODE, 1000, options={"queue#batch": "100"})
        for _ in range(10):
            await bob.items()
        await bob.done(retract(NODE, *ids))
        await works(alice, bob)


async def test_a_flood_of_items_ends_at_the_limit(queues: Served) -> None:
    """Each item over it is refused; the next worker makes room again."""
    async with peers(queues, "alice/a", "bob/b", "mallory/m") as found:
        alice, bob, mallory = found
        await alice.create(NODE, {"queue#max_items": "20"})
        await alice.affiliate(NODE, mallory="publisher")
        asked = [
            await mallory.start_asking(publish(NODE, item(str(number))))
            for number in range(100)
        ]
        answers = [await mallory.answered(iq_id) for iq_id in asked]
        refused = [each for each in answers if each.get("type") == "error"]
        assert len(refused) == 80
        assert {Refused.of(each) for each in refused} == {NO_ROOM}
        assert (await alice.stats(NODE))["available"] == "20"
        await bob.subscribe(NODE)
        await bob.done(retract(NODE, (await bob.item()).named))
        await mallory.publish(NODE, item("more"))


async def test_a_flood_of_requests_leaves_others_served(queues: Served) -> None:
    """Refused, large and simultaneous requests: meanwhile bob's retract is answered."""
    async with peers(queues, "alice/a", "bob/b", "mallory/m") as found:
        alice, bob, mallory = found
        await alice.create(NODE, EAGER)
        await bob.subscribe(NODE)
        flood = [
            publish(NODE, item(payload="x" * 1000)),
            retract(NODE, "1"),
            pubsub(f"<items node='{NODE}'/>"),
            pubsub(f"<configure node='{NODE}'><x/></configure>", OWNER),
        ]

        async def attack() -> list[str]:
            return [
                await mallory.start_asking(flood[number % len(flood)])
                for number in range(1000)
            ]

        attacking = asyncio.create_task(attack())
        for number in range(20):
            await alice.publish(NODE, item(str(number)))
            await bob.done(retract(NODE, (await bob.item()).named))
        asked = await attacking
        answers = [await mallory.answered(iq_id) for iq_id in asked]
        assert {each.get("type") for each in answers} == {"error"}
        assert (await alice.stats(NODE))["accepted"] == "20"


# -- XML that nobody writes ------------------------------------------------

_DEEP = 10_000


def deep(name: str = "d") -> str:
    """Nested elements."""
    return f"<{name}>" * _DEEP + f"</{name}>" * _DEEP


def wide(name: str = "w", attributes: int = 1000) -> str:
    """An element with this many attributes."""
    given = " ".join(f"a{number}='{number}'" for number in range(attributes))
    return f"<{name} {given}/>"


@pytest.mark.parametrize(
    "content",
    [
        f"<publish node='{NODE}'><item id='1'><x xmlns='urn:x'>{{}}</x></item></publish>",
        f"<publish node='{NODE}'><item id='1'>{{}}</item></publish>",
        f"<publish node='{NODE}'>{{}}</publish>",
        f"<retract node='{NODE}'>{{}}</retract>",
        f"<retract node='{NODE}'><item id='1'>{{}}</item></retract>",
        f"<unlock xmlns='{QUEUEING}' node='{NODE}'><item id='1'><q:rejected>{{}}"
        "</q:rejected></item></unlock>",
        f"<subscribe node='{NODE}' jid='bob@localhost'/><options>{{}}</options>",
        f"<create node='{NODE}'/><configure><x xmlns='{DATA}' type='submit'>{{}}"
        "</x></configure>",
        "{}",
    ],
)
@pytest.mark.parametrize("made", [deep, wide], ids=["deep", "wide"])
async def test_deep_and_wide_xml_is_answered(
    queues: Served, content: str, made: object
) -> None:
    """Any answer is fine, at each place where we read a request."""
    assert callable(made)
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await alice.affiliate(NODE, bob="owner")
        answer = await bob.ask(pubsub(content.format(made())))
        assert answer.get("type") in {"result", "error"}
        if answer.get("type") == "error":
            assert Refused.of(answer).type in {"modify", "cancel", "auth", "wait"}
        await works(alice, bob)


async def test_a_wide_payload_comes_as_it_was(queues: Served) -> None:
    """A thousand attributes are legal; only their order may change."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await alice.done(publish(NODE, f"<item id='1'>{wide()}</item>"))
        await alice.done(publish(NODE, f"<item id='1'>{wide()}</item>"))
        await bob.subscribe(NODE)
        (element,) = (await bob.items()).iter(f"{{{PUBSUB}}}w")
        assert element.attrib == {f"a{number}": str(number) for number in range(1000)}


@pytest.mark.parametrize(
    "name",
    [
        "<&>\"'",
        "]]><x/>",
        "a b",
        "a\u00a0b",
        "ä\u0301😀",
        "\u202edrow",
        "\u0085\u2028",
        "\ufdd0\ufffd",
        "%2F/../",
        "'; DROP TABLE items; --",
        "{0}%s\\",
        "e\u0301",
        "\u00e9",
        "-1",
        "0",
    ],
)
async def test_names_of_any_characters_are_taken_as_they_are(
    queues: Served, name: str
) -> None:
    """Node and item: no normal form, no quoting, no loss."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create("letters")
        await alice.create(name, EAGER | {"queue#dead_letter_node": "letters"})
        await alice.publish(name, item(name), item("other"))
        assert list(await alice.browse(name)) == [name, "other"]
        await queues.restart()
        await bob.subscribe(name)
        one = await bob.item(name)
        assert one.id == name
        await bob.done(unlock(name, one.named, content="<q:rejected/>"))
        await bob.told("unlock", name)
        (letter,) = (await alice.browse("letters")).values()
        assert (letter["origin"], letter["origin-id"]) == (name, name)
        request = f"<q:requeue node={quoteattr(name)}><item id={quoteattr(name)}/></q:requeue>"
        await alice.done(pubsub(request))
        assert set(await alice.browse(name)) == {name, "other"}
        await alice.done(pubsub(f"<delete node={quoteattr(name)}/>", OWNER))
        assert await alice.refused(publish(name, item("1"))) == NOT_FOUND


async def test_a_reason_is_cut_and_harmless(queues: Served) -> None:
    """A worker's text is kept in the history, and shown to owners."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        one = await bob.item()
        reason = "<![CDATA[<&>\"']]>" + "r" * 100_000
        content = f"<q:rejected>{reason}</q:rejected>"
        await bob.done(unlock(NODE, one.named, content=content))
        dead = await alice.browse(NODE, "dead")
        assert dead["1"]["reason"].startswith("rejected: <&>\"'rrr")
        assert len(dead["1"]["reason"]) < 1100


# -- stanzas that are no requests ------------------------------------------


async def test_other_stanzas_change_nothing(queues: Served) -> None:
    """Presences, unexpected answers and errors, events of a service."""
    async with peers(queues, "alice/a", "bob/b", "mallory/m") as found:
        alice, bob, mallory = found
        await alice.create(NODE)
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        message = await bob.items()
        event = ET.tostring(message[0], encoding="unicode")
        event_id = message.get("id", "")
        (one,) = message.iter("{http://jabber.org/protocol/pubsub#event}item")
        to = f"to='{queues.jid}'"
        error = (
            "<error type='cancel'><service-unavailable "
            "xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
        )
        for xml in (
            f"<presence {to} type='unavailable'/>",
            f"<presence {to} type='error'>{error}</presence>",
            f"<presence {to} type='subscribe'/>",
            f"<iq {to} type='result' id='{event_id}'/>",
            f"<iq {to} type='error' id='{event_id}'>{error}</iq>",
            f"<message {to} type='error' id='{event_id}'>{event}{error}</message>",
            f"<message {to}>{event}</message>",
            f"<message {to}>{retract(NODE, '1')}</message>",
            f"<iq {to} type='result' id='r'>{retract(NODE, '1')}</iq>",
            f"<iq {to} type='error' id='r'>{retract(NODE, '1')}{error}</iq>",
        ):
            await mallory.send(xml)
        await mallory.synced()
        assert (await alice.browse(NODE))["1"]["state"] == "acquired"
        await bob.done(retract(NODE, "1"))
        assert one.get("id") == "1"
        await works(alice, bob)


async def test_a_bounce_is_of_ones_own_event(queues: Served) -> None:
    """A worker that returns an event has released it; a second bounce has no effect."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE, EAGER)
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"))
        message = await bob.items()
        await carol.subscribe(NODE)
        error = (
            f"<message to='{queues.jid}' type='error' id='{message.get('id')}'>"
            "<error type='cancel'><service-unavailable "
            "xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></message>"
        )
        await bob.send(error)
        again = await carol.item()
        assert again.count == 0
        await bob.send(error)
        await carol.send(error)
        await carol.done(retract(NODE, again.named))


@pytest.mark.parametrize("count", [2, 1000])
async def test_a_form_with_many_fields_is_read_or_refused(
    queues: Served, count: int
) -> None:
    """Fields of other services are ignored, however many."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        for form_type, content in (
            (NODE_CONFIG, "<configure node='{}'>{}</configure>"),
            (SUBSCRIBE_OPTIONS, "<options node='{}' jid='{}'>{}</options>"),
        ):
            fields = "".join(
                f"<field var='pubsub#f{number}'><value>{number}</value></field>"
                for number in range(count)
            )
            x = (
                f"<x xmlns='{DATA}' type='submit'><field var='FORM_TYPE'>"
                f"<value>{form_type}</value></field>{fields}</x>"
            )
            if form_type == NODE_CONFIG:
                await alice.done(pubsub(content.format(NODE, x), OWNER))
            else:
                await bob.subscribe(NODE)
                await bob.done(pubsub(content.format(NODE, bob.jid, x)))
        await works(alice, bob)
