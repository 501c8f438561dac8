"""The listings of XEP-0254 as in the XEP, used by a peer without our extensions.

The JIDs are those of the tests. Where the listings have iq type `get` and the XEP's
text means `set`, both are sent (docs/design/queue.md §1.1).
"""

from xml.etree import ElementTree as ET

import pytest

from passing_time import let_pass
from queue_service import (
    CLIENT,
    DATA,
    DISCO_INFO,
    EAGER,
    ERRORS,
    EVENT,
    LOCK_S,
    LOCKING,
    NOT_ACCEPTABLE,
    PUBSUB,
    QUEUEING,
    QUEUEING_OLD,
    SERVICE,
    STANZAS,
    SUBSCRIBE_OPTIONS,
    Delivered,
    Peer,
    Refused,
    Served,
    delivered,
    form,
    item,
    kinds,
    peers,
    pubsub,
)
from raw_client import stanza

NODE = "a290fjsl29j19kjb"
ITEM = "ae890ac52d0df67ed7cfd51b644e901"

TYPES = pytest.mark.parametrize("kind", ["get", "set"])
NAMESPACES = pytest.mark.parametrize("xmlns", [QUEUEING, QUEUEING_OLD])


pytestmark = pytest.mark.asyncio(loop_scope="module")


def listing_2(worker: Peer) -> str:
    """Subscribe with options; the JID is bare, as in the XEP."""
    return f"""
<iq from='{worker.jid}'
  id='sub2'
  to='{SERVICE}'
  type='set'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <subscribe
      jid='{worker.account}'
      node='{NODE}' />
    <options
      jid='{worker.account}'
      node='{NODE}'>
      <x xmlns='jabber:x:data' type='submit'>
        <field var='FORM_TYPE' type='hidden'>
          <value>http://jabber.org/protocol/pubsub#subscribe_options</value>
        </field>
        <field var='pubsub#queue_requests'>
          <value>5</value>
        </field>
      </x>
    </options>
  </pubsub>
</iq>
"""


def listing_4(publisher: Peer, item_id: str = ITEM) -> str:
    return f"""
<iq from='{publisher.jid}'
  id='pub1'
  to='{SERVICE}'
  type='set'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <publish node='{NODE}'>
      <item id='{item_id}'>
        <example xmlns='urn:xmpp:example'>payload</example>
      </item>
    </publish>
  </pubsub>
</iq>
"""


def listing_6(worker: Peer, kind: str, item_id: str = ITEM) -> str:
    return f"""
<iq from='{worker.jid}'
  id='delete1'
  to='{SERVICE}'
  type='{kind}'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <retract node='{NODE}'>
      <item id='{item_id}' />
    </retract>
  </pubsub>
</iq>
"""


def listing_10(worker: Peer, kind: str, xmlns: str, item_id: str = ITEM) -> str:
    return f"""
<iq from='{worker.jid}'
  id='unlock1'
  to='{SERVICE}'
  type='{kind}'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
<unlock xmlns='{xmlns}'
        node='{NODE}'>
  <item id='{item_id}' />
</unlock>
</pubsub>
</iq>
"""


async def subscribed(worker: Peer) -> ET.Element:
    """Do listing 2; returns the answer, which must be a result."""
    await worker.send(listing_2(worker))
    answer = await worker.expect(stanza("iq", id="sub2"))
    assert answer.get("type") == "result", ET.tostring(answer)
    return answer


async def published(publisher: Peer, item_id: str = ITEM) -> None:
    """Do listing 4."""
    await publisher.send(listing_4(publisher, item_id))
    answer = await publisher.expect(stanza("iq", id="pub1"))
    assert answer.get("type") == "result", ET.tostring(answer)


async def prepared(
    publisher: Peer, worker: Peer, config: dict[str, str] = EAGER
) -> Delivered:
    """Listings 2, 4 and 5: a worker holds the item."""
    await publisher.create(NODE, config)
    await subscribed(worker)
    await published(publisher)
    return await worker.item()


def echo_of(answer: ET.Element, name: str) -> tuple[str, str]:
    """The node and the item that an error repeats."""
    (asked,) = answer.iterfind(f"{{{PUBSUB}}}pubsub/{name}")
    (one,) = asked
    return asked.get("node", ""), one.get("id", "")


# -- subscribing -----------------------------------------------------------


async def test_listing_1_a_subscription_without_options_is_answered_by_their_form(
    queues: Served,
) -> None:
    """XEP-0254 §2.1 MUST: this tells a stranger that the node is a queue."""
    async with peers(queues, "alice/a", "bob/foo") as (alice, bob):
        await alice.create(NODE)
        await bob.send(
            f"""
<iq from='{bob.jid}' id='sub1' to='{SERVICE}' type='set'>
  <pubsub xmlns='http://jabber.org/protocol/pubsub'>
    <subscribe jid='{bob.account}' node='{NODE}' />
  </pubsub>
</iq>"""
        )
        answer = await bob.expect(stanza("iq", id="sub1", from_=SERVICE, to=bob.jid))
        assert Refused.of(answer) == Refused(
            "modify", "not-acceptable", "configuration-required"
        )
        pubsub_, error = answer
        assert pubsub_.tag == f"{{{PUBSUB}}}pubsub"
        assert error.find(f"{{{STANZAS}}}not-acceptable") is not None
        assert error.find(f"{{{ERRORS}}}configuration-required") is not None
        subscribe, options = pubsub_
        assert subscribe.tag == f"{{{PUBSUB}}}subscribe"
        assert options.tag == f"{{{PUBSUB}}}options"
        for each in (subscribe, options):
            assert each.attrib == {"jid": bob.account, "node": NODE}
        (x,) = options
        assert (x.tag, x.get("type")) == (f"{{{DATA}}}x", "form")
        hidden, first, *_others = x.iterfind(f"{{{DATA}}}field")
        assert (hidden.get("var"), hidden.get("type")) == ("FORM_TYPE", "hidden")
        assert hidden.findtext(f"{{{DATA}}}value") == SUBSCRIBE_OPTIONS
        assert first.get("var") == "pubsub#queue_requests"
        assert first.get("type") == "text-single"
        assert first.find(f"{{{DATA}}}required") is not None
        assert first.find(f"{{{DATA}}}value") is None
        assert not await subscriptions_of(bob)


async def subscriptions_of(worker: Peer) -> list[str]:
    """The JIDs that its account has subscribed."""
    answer = await worker.done(pubsub("<subscriptions/>"), "get")
    return [each.get("jid", "") for each in answer.iter(f"{{{PUBSUB}}}subscription")]


@pytest.mark.parametrize(
    "options",
    [
        "<options/>",
        f"<options>{form(SUBSCRIBE_OPTIONS, {})}</options>",
        f"<options>{form(SUBSCRIBE_OPTIONS, {'queue#batch': '2'})}</options>",
        f"<options>{form(SUBSCRIBE_OPTIONS, {'pubsub#digest': '1'})}</options>",
        "<options><x xmlns='jabber:x:data' type='cancel'/></options>",
    ],
    ids=["none", "no field", "batch only", "of another service", "cancel"],
)
async def test_options_without_queue_requests_get_the_form_too(
    queues: Served, options: str
) -> None:
    """There is no default: it is the number of items that a worker must hold."""
    async with peers(queues, "alice/a", "bob/foo") as (alice, bob):
        await alice.create(NODE)
        request = pubsub(f"<subscribe jid='{bob.jid}' node='{NODE}'/>{options}")
        answer = await bob.ask(request)
        assert Refused.of(answer).pubsub == "configuration-required"
        assert answer.find(f".//{{{DATA}}}x[@type='form']") is not None
        assert not await subscriptions_of(bob)


async def test_listings_2_and_3_the_options_come_back_with_the_subscription(
    queues: Served,
) -> None:
    """XEP-0254 §2.1: the result includes the options in force."""
    async with peers(queues, "alice/a", "bob/foo") as (alice, bob):
        await alice.create(NODE)
        answer = await subscribed(bob)
        assert (answer.get("from"), answer.get("to")) == (SERVICE, bob.jid)
        (pubsub_,) = answer
        subscription, options = pubsub_
        assert subscription.tag == f"{{{PUBSUB}}}subscription"
        subid = subscription.get("subid", "")
        assert subid
        assert subscription.attrib == {
            "jid": bob.account,
            "node": NODE,
            "subid": subid,
            "subscription": "subscribed",
        }
        assert options.tag == f"{{{PUBSUB}}}options"
        (x,) = options
        assert (x.tag, x.get("type")) == (f"{{{DATA}}}x", "result")
        hidden, first, *_others = x.iterfind(f"{{{DATA}}}field")
        assert (hidden.get("var"), hidden.get("type")) == ("FORM_TYPE", "hidden")
        assert hidden.findtext(f"{{{DATA}}}value") == SUBSCRIBE_OPTIONS
        assert first.get("var") == "pubsub#queue_requests"
        assert [each.text for each in first] == ["5"]
        assert await subscriptions_of(bob) == [bob.account]


@pytest.mark.parametrize("name", ["queue_requests", "pubsub#queue_requests"])
@pytest.mark.parametrize("form_type", [SUBSCRIBE_OPTIONS, ""])
async def test_the_field_is_read_with_and_without_its_prefix(
    queues: Served, name: str, form_type: str
) -> None:
    """docs/design/queue.md §1.5: the text has one form, its listings the other."""
    async with peers(queues, "alice/a", "bob/foo") as (alice, bob):
        await alice.create(NODE)
        options = form(form_type, {name: "3", "pubsub#deliver": "1"})
        if not form_type:
            options = (
                f"<x xmlns='{DATA}' type='submit'>{options.partition('</field>')[2]}"
            )
        answer = await bob.done(
            pubsub(
                f"<subscribe jid='{bob.jid}' node='{NODE}'/><options>{options}</options>"
            )
        )
        fields = {
            field.get("var"): field.findtext(f"{{{DATA}}}value")
            for field in answer.iter(f"{{{DATA}}}field")
        }
        assert fields["pubsub#queue_requests"] == "3"
        assert "queue_requests" not in fields


# -- an item ---------------------------------------------------------------


async def test_listings_4_and_5_one_subscriber_is_told(queues: Served) -> None:
    """XEP-0254 §2.2: the item goes to one of the subscribers; bare, if it subscribed so."""
    names = ("alice/a", "bob/foo", "carol/foo")
    async with peers(queues, *names) as (alice, bob, carol):
        await alice.create(NODE)
        await subscribed(bob)
        await subscribed(carol)
        await alice.send(listing_4(alice))
        answer = await alice.expect(stanza("iq", id="pub1", from_=SERVICE))
        assert answer.get("type") == "result"
        (publish,) = answer.iter(f"{{{PUBSUB}}}publish")
        assert publish.get("node") == NODE
        assert [each.get("id") for each in publish] == [ITEM]
        await bob.synced()
        await carol.synced()
        events = [each for peer in (bob, carol) for each in peer.received()]
        (message,) = events
        assert message.tag == f"{{{CLIENT}}}message"
        assert message.get("from") == SERVICE
        assert message.get("id")
        assert message.get("type") in {None, "normal"}
        assert kinds(message) == [("item", ITEM)]
        (items,) = message.iter(f"{{{EVENT}}}items")
        assert items.get("node") == NODE
        (payload,) = items[0]
        assert payload.tag == "{urn:xmpp:example}example"
        assert payload.text == "payload"


@TYPES
async def test_listings_6_and_7_a_retract_is_told_to_this_subscriber_only(
    queues: Served, kind: str
) -> None:
    """XEP-0254 §2.3 MUST: delete it, and notify only this subscriber."""
    names = ("alice/a", "bob/foo", "bob/bar", "carol/foo")
    async with peers(queues, *names) as (alice, bob, bar, carol):
        await alice.create(NODE)
        await bob.subscribe(NODE)
        await published(alice)
        await bob.item()
        await bar.subscribe(NODE)
        await carol.subscribe(NODE)
        await bob.send(listing_6(bob, kind))
        answer = await bob.expect(stanza("iq", id="delete1", from_=SERVICE, to=bob.jid))
        assert answer.get("type") == "result"
        assert not len(answer)
        message = await bob.event(NODE)
        assert (message.get("from"), message.get("to")) == (SERVICE, bob.jid)
        (items,) = message.iter(f"{{{EVENT}}}items")
        assert items.get("node") == NODE
        assert [(each.tag, each.attrib) for each in items] == [
            (f"{{{EVENT}}}retract", {"id": ITEM})
        ]
        for peer in (alice, bob, bar, carol):
            await peer.nothing()
        assert await alice.browse(NODE) == {}


@TYPES
async def test_a_retract_of_what_is_not_there_is_item_not_found(
    queues: Served, kind: str
) -> None:
    """XEP-0254 §2.3 MUST, with the type of XEP-0060."""
    async with peers(queues, "alice/a", "bob/foo") as (alice, bob):
        await alice.create(NODE)
        await subscribed(bob)
        await bob.send(listing_6(bob, kind))
        answer = await bob.expect(stanza("iq", id="delete1"))
        assert Refused.of(answer) == Refused("cancel", "item-not-found")


@TYPES
async def test_listing_8_a_retract_by_a_stranger_is_forbidden(
    queues: Served, kind: str
) -> None:
    """XEP-0254 §2.3 MUST; sent as an error (docs/design/queue.md §1.2)."""
    async with peers(queues, "alice/a", "bob/foo", "carol/foo") as (alice, bob, carol):
        await prepared(alice, bob)
        await carol.send(listing_6(carol, kind))
        answer = await carol.expect(stanza("iq", id="delete1", from_=SERVICE))
        assert Refused.of(answer) == Refused("auth", "forbidden")
        assert answer.get("to") == carol.jid
        assert echo_of(answer, f"{{{PUBSUB}}}retract") == (NODE, ITEM)


@TYPES
async def test_a_retract_of_what_another_has_locked_is_a_conflict(
    queues: Served, kind: str
) -> None:
    """XEP-0254 §2.3 MUST: by an earlier receiver, while the next one has the item."""
    async with peers(queues, "alice/a", "bob/foo", "carol/foo") as (alice, bob, carol):
        await prepared(alice, bob)
        await carol.subscribe(NODE)
        await bob.send(listing_10(bob, "set", QUEUEING))
        await carol.item()
        await bob.send(listing_6(bob, kind))
        answer = await bob.expect(stanza("iq", id="delete1"))
        assert Refused.of(answer) == Refused("cancel", "conflict")
        assert echo_of(answer, f"{{{PUBSUB}}}retract") == (NODE, ITEM)
        assert (await alice.browse(NODE))[ITEM]["holder"] == carol.jid


@TYPES
async def test_listing_9_a_retract_without_the_lock_is_unexpected(
    queues: Served, kind: str
) -> None:
    """XEP-0254 §2.3 MUST: the race between a late worker and its time-out."""
    async with peers(queues, "alice/a", "bob/foo") as (alice, bob):
        await prepared(alice, bob, LOCKING)
        await let_pass(LOCK_S)
        await bob.told("unlock", ITEM)
        await bob.done(pubsub(f"<unsubscribe node='{NODE}' jid='{bob.account}'/>"))
        await bob.send(listing_6(bob, kind))
        answer = await bob.expect(stanza("iq", id="delete1"))
        assert Refused.of(answer) == Refused("wait", "unexpected-request")
        assert echo_of(answer, f"{{{PUBSUB}}}retract") == (NODE, ITEM)
        assert ITEM in await alice.browse(NODE)


# -- unlock ----------------------------------------------------------------


@TYPES
@NAMESPACES
async def test_listings_10_and_11_an_unlock_goes_to_the_next_subscriber(
    queues: Served, kind: str, xmlns: str
) -> None:
    """XEP-0254 §2.4 MUST: tell only this one; then publish to another.

    docs/design/queue.md §1.4: either namespace.
    """
    async with peers(queues, "alice/a", "bob/foo", "carol/foo") as (alice, bob, carol):
        first = await prepared(alice, bob)
        await carol.subscribe(NODE)
        await bob.send(listing_10(bob, kind, xmlns))
        answer = await bob.expect(stanza("iq", id="unlock1", from_=SERVICE, to=bob.jid))
        assert answer.get("type") == "result"
        assert not len(answer)
        message = await bob.event(NODE)
        (items,) = message.iter(f"{{{EVENT}}}items")
        assert [(each.tag, each.attrib) for each in items] == [
            (f"{{{QUEUEING}}}unlock", {"id": ITEM})
        ]
        again = delivered(await carol.event(NODE))
        assert [each.id for each in again] == [ITEM]
        assert again[0].token != first.token
        for peer in (alice, bob, carol):
            await peer.nothing()


@TYPES
@NAMESPACES
async def test_listings_12_to_15_the_refusals_of_an_unlock(
    queues: Served, kind: str, xmlns: str
) -> None:
    """XEP-0254 §2.4 MUST, four of them; each repeats the request and changes nothing."""

    async def refused(worker: Peer, item_id: str = ITEM) -> Refused:
        await worker.send(listing_10(worker, kind, xmlns, item_id))
        answer = await worker.expect(stanza("iq", id="unlock1", from_=SERVICE))
        assert answer.get("to") == worker.jid
        assert echo_of(answer, f"{{{xmlns}}}unlock") == (NODE, item_id)
        return Refused.of(answer)

    async with peers(queues, "alice/a", "bob/foo", "carol/foo") as (alice, bob, carol):
        await prepared(alice, bob)
        # Listings 12 and 13.
        assert await refused(bob, "no such item") == Refused("cancel", "item-not-found")
        assert await refused(carol) == Refused("auth", "forbidden")
        # Listing 14.
        await carol.subscribe(NODE)
        await bob.send(listing_10(bob, "set", QUEUEING))
        await bob.expect(stanza("iq", id="unlock1"))
        assert (await carol.item()).id == ITEM
        assert await refused(bob) == Refused("cancel", "conflict")
        # Listing 15.
        await bob.done(pubsub(f"<unsubscribe node='{NODE}' jid='{bob.account}'/>"))
        await carol.done(pubsub(f"<unsubscribe node='{NODE}' jid='{carol.jid}'/>"))
        await carol.send(listing_10(carol, "set", QUEUEING))
        answer = await carol.expect(stanza("iq", id="unlock1"))
        assert answer.get("type") == "result"
        assert await refused(carol) == Refused("wait", "unexpected-request")
        assert await refused(bob) == Refused("wait", "unexpected-request")
        assert list(await alice.browse(NODE)) == [ITEM]


# -- support, presence, time -----------------------------------------------


async def test_section_3_service_and_node_announce_the_mode(queues: Served) -> None:
    """XEP-0254 §3 MUST; §7.3: the node or service supports the queueing mode."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        for node in ("", f" node='{NODE}'"):
            answer = await alice.done(f"<query xmlns='{DISCO_INFO}'{node}/>", "get")
            features = [
                each.get("var") for each in answer.iter(f"{{{DISCO_INFO}}}feature")
            ]
            assert QUEUEING in features


async def test_section_4_an_unavailable_subscriber_is_unlocked_and_unsubscribed(
    queues: Served,
) -> None:
    """XEP-0254 §4 SHOULD: only presence tells of a worker that has crashed."""
    async with peers(queues, "alice/a", "bob/foo", "carol/foo") as (alice, bob, carol):
        await bob.be_present()
        await prepared(alice, bob)
        await carol.subscribe(NODE)
        await bob.cut()
        again = await carol.item()
        assert (again.id, again.count) == (ITEM, 1)
        assert (await alice.stats(NODE))["subscribers"] == "1"


async def test_section_4_a_worker_unsubscribes_and_then_unlocks(queues: Served) -> None:
    """XEP-0254 §4 SHOULD: for example with a full disk.

    docs/design/queue.md §1.9: a lock outlives the subscription.
    """
    async with peers(queues, "alice/a", "bob/foo", "carol/foo") as (alice, bob, carol):
        await prepared(alice, bob)
        await carol.subscribe(NODE)
        await bob.done(pubsub(f"<unsubscribe node='{NODE}' jid='{bob.account}'/>"))
        await carol.nothing()
        await bob.send(listing_10(bob, "get", QUEUEING))
        assert (await bob.expect(stanza("iq", id="unlock1"))).get("type") == "result"
        await bob.told("unlock", ITEM)
        assert (await carol.item()).count == 0
        await published(alice, "another")
        await bob.nothing()


async def test_section_4_a_lock_times_out_and_the_next_one_gets_the_item(
    queues: Served,
) -> None:
    """XEP-0254 §4 SHOULD: the late worker is told, then the next."""
    async with peers(queues, "alice/a", "bob/foo", "carol/foo") as (alice, bob, carol):
        await prepared(alice, bob, LOCKING)
        await carol.subscribe(NODE)
        await carol.nothing()
        await let_pass(LOCK_S)
        await bob.told("unlock", ITEM)
        again = await carol.item()
        assert (again.id, again.count, again.q["first-acquirer"]) == (ITEM, 1, "false")
        await bob.nothing()


async def test_what_is_not_a_queue_cannot_be_made_here(queues: Served) -> None:
    """XEP-0060 has other nodes; each node here is a queue, and says so."""
    async with peers(queues, "alice/a") as (alice,):
        config = form(
            "http://jabber.org/protocol/pubsub#node_config",
            {"queue#no_such_option": "1"},
        )
        refused = await alice.refused(
            pubsub(f"<create node='{NODE}'/><configure>{config}</configure>")
        )
        assert refused.type == NOT_ACCEPTABLE.type
        assert await alice.refused(pubsub(f"<items node='{NODE}'/>"), "get") == Refused(
            "cancel", "item-not-found"
        )
        await alice.create(NODE)
        await alice.publish(NODE, item("1"))
