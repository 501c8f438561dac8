"""XEP-0060 around the queue: nodes, forms, lists, and who may what."""

import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import pytest_asyncio

from prosody import Prosody
from queue_service import (
    BAD_REQUEST,
    CONFLICT,
    DATA,
    DISCO_INFO,
    DISCO_ITEMS,
    ERRORS,
    EXTENSIONS,
    FORBIDDEN,
    NODE_CONFIG,
    NOT_ACCEPTABLE,
    NOT_FOUND,
    OWNER,
    PRIVATE,
    PUBSUB,
    QUEUEING,
    RSM,
    Peer,
    Refused,
    Served,
    form,
    item,
    own_server,
    peers,
    publish,
    pubsub,
    retract,
    served,
    subscribe,
    unlock,
    values_of,
)

NODE = "orders"
UNSUPPORTED = Refused("cancel", "feature-not-implemented", "unsupported")
CLOSED = Refused("cancel", "not-allowed", "closed-node")
INVALID_JID = Refused("modify", "bad-request", "invalid-jid")

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prosody]:
    async with own_server(tmp_path_factory.mktemp("prosody")) as prosody:
        yield prosody


@pytest_asyncio.fixture(loop_scope="module")
async def queues(server: Prosody, tmp_path: Path) -> AsyncIterator[Served]:
    async with served(server, tmp_path) as service:
        yield service


def create(node: str, config: Mapping[str, str] | None = None) -> str:
    configure = (
        "" if config is None else f"<configure>{form(NODE_CONFIG, config)}</configure>"
    )
    return pubsub(f"<create node='{node}'/>{configure}")


def configure(node: str, config: Mapping[str, str]) -> str:
    content = f"<configure node='{node}'>{form(NODE_CONFIG, config)}</configure>"
    return pubsub(content, OWNER)


async def configuration(owner: Peer, node: str) -> dict[str, str]:
    """The whole configuration form of a node."""
    answer = await owner.done(pubsub(f"<configure node='{node}'/>", OWNER), "get")
    return values_of(answer)


# -- create and configure --------------------------------------------------


async def test_a_node_is_created_once(queues: Served) -> None:
    """XEP-0060 §8.1: its creator is its owner."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        for peer in (alice, bob):
            assert await peer.refused(create(NODE)) == CONFLICT
        assert await configuration(alice, NODE)
        get = pubsub(f"<configure node='{NODE}'/>", OWNER)
        assert await bob.refused(get, "get") == FORBIDDEN


async def test_an_instant_node_gets_a_name(queues: Served) -> None:
    """XEP-0060 §8.1.2: each another one."""
    async with peers(queues, "alice/a") as (alice,):
        names = []
        for content in ("<create/>", "<create node=''/>"):
            answer = await alice.done(pubsub(content))
            (made,) = answer.iter(f"{{{PUBSUB}}}create")
            names.append(made.get("node", ""))
        assert len({*names, ""}) == 3
        for name in names:
            await alice.publish(name, item("1"))


async def test_who_may_create_is_configurable(server: Prosody, tmp_path: Path) -> None:
    """`--creators`: accounts, from whatever resource."""
    creators = ["alice@localhost/some", "carol@localhost"]
    async with (
        served(server, tmp_path, creators=creators) as queues,
        peers(queues, "alice/a", "bob/b") as (alice, bob),
    ):
        await alice.create(NODE)
        assert await bob.refused(create("other")) == FORBIDDEN
        # What it is allowed to do does not tell which nodes there are.
        assert await bob.refused(create(NODE)) == FORBIDDEN


async def test_a_node_is_created_with_its_configuration(queues: Served) -> None:
    """XEP-0060 §8.1.3; the rest are the defaults, and all of it survives."""
    async with peers(queues, "alice/a") as (alice,):
        answer = await alice.done(pubsub("<default/>", OWNER), "get")
        defaults = values_of(answer)
        assert defaults["FORM_TYPE"] == NODE_CONFIG
        changes = {"queue#lock_timeout": "5", "pubsub#access_model": "whitelist"}
        await alice.create(NODE, changes)
        await alice.create("plain")
        for _ in range(2):
            assert await configuration(alice, NODE) == {**defaults, **changes}
            assert await configuration(alice, "plain") == defaults
            await queues.restart()


#: The fields of the issue, with a good value each and some bad ones.
FIELDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "pubsub#access_model": ("whitelist", ("presence", "roster", "authorize", "", "0")),
    "pubsub#publish_model": ("open", ("subscribers", "", "0")),
    "queue#lock_timeout": ("0.5", ("0", "-1", "1000000000", "text", "", "nan", "1e3")),
    "queue#max_deliveries": ("3", ("0", "-1", "1000000000", "text", "", "1.5")),
    "queue#ttl": ("60", ("0", "-1", "1000000000", "text", "inf")),
    "queue#backoff": ("0", ("-1", "1000000000", "text", "")),
    "queue#max_items": ("10", ("0", "-1", "1000000000", "text", "1.5")),
    "queue#max_bytes": ("10", ("0", "-1", "1000000000000000", "text")),
    "queue#dedupe_window": ("0", ("-1", "1000000000", "text", "")),
    "queue#keep_accepted": ("60", ("-1", "1000000000", "text", "")),
}


@pytest.mark.parametrize("field", FIELDS)
async def test_a_field_takes_its_values_and_no_other(
    queues: Served, field: str
) -> None:
    """A bad one is not-acceptable, and nothing of the form is done."""
    good, bad = FIELDS[field]
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        before = await configuration(alice, NODE)
        assert field in before
        for value in bad:
            form_ = {"queue#lock_timeout": "7", field: value}
            assert await alice.refused(configure(NODE, form_)) == NOT_ACCEPTABLE, value
            assert await alice.refused(create("no", form_)) == NOT_ACCEPTABLE, value
        assert await configuration(alice, NODE) == before
        await alice.done(configure(NODE, {field: good}))
        assert await configuration(alice, NODE) == {**before, field: good}
        assert await alice.refused(publish("no", item("1"))) == NOT_FOUND


async def test_a_whole_form_can_be_sent_back_with_fields_of_other_services(
    queues: Served,
) -> None:
    """Clients send what they were given, and what they know of other services."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        whole = await configuration(alice, NODE)
        del whole["FORM_TYPE"]
        others = {
            "pubsub#title": "Orders",
            "pubsub#persist_items": "1",
            "pubsub#max_items": "max",
        }
        await alice.done(configure(NODE, {**whole, **others, "queue#backoff": "2"}))
        after = await configuration(alice, NODE)
        del after["FORM_TYPE"]
        assert after == {**whole, "queue#backoff": "2"}
        cancel = (
            f"<configure node='{NODE}'><x xmlns='{DATA}' type='cancel'/></configure>"
        )
        await alice.done(pubsub(cancel, OWNER))


@pytest.mark.parametrize(
    "content",
    [
        form(NODE_CONFIG, {"queue#no_such_field": "1"}),
        form("urn:another:form", {"queue#backoff": "1"}),
        form(NODE_CONFIG, {"queue#backoff": "1"}, "form"),
        form(NODE_CONFIG, {}).replace(
            "</x>",
            "<field var='queue#backoff'><value>1</value><value>2</value></field></x>",
        ),
        form(NODE_CONFIG, {}).replace(
            "</x>",
            "<field var='queue#backoff'><value>1</value></field>" * 2 + "</x>",
        ),
        form(NODE_CONFIG, {}) * 2,
        "<x xmlns='urn:x'/>",
        "text",
        "",
    ],
    ids=[
        "field",
        "form type",
        "type",
        "values",
        "fields",
        "forms",
        "no form",
        "text",
        "none",
    ],
)
async def test_a_form_that_is_none_is_a_bad_request(
    queues: Served, content: str
) -> None:
    """Two values in a field and a misspelt name of ours are mistakes, not defaults."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        before = await configuration(alice, NODE)
        request = pubsub(f"<configure node='{NODE}'>{content}</configure>", OWNER)
        refused = await alice.refused(request)
        assert (refused.type, refused.condition) == ("modify", "bad-request")
        assert await configuration(alice, NODE) == before


# -- who may what ----------------------------------------------------------


async def test_only_owners_do_what_owners_do(queues: Served) -> None:
    """A publisher and a member are not; a node that is not there is not found."""
    async with peers(queues, "alice/a", "bob/b", "carol/c", "mallory/m") as found:
        alice, *others = found
        await alice.create(NODE)
        await alice.affiliate(NODE, bob="publisher", carol="member")
        for kind, content in (
            ("get", f"<configure node='{NODE}'/>"),
            ("set", f"<configure node='{NODE}'>{form(NODE_CONFIG, {})}</configure>"),
            ("set", f"<delete node='{NODE}'/>"),
            ("set", f"<purge node='{NODE}'/>"),
            ("get", f"<subscriptions node='{NODE}'/>"),
            ("get", f"<affiliations node='{NODE}'/>"),
            (
                "set",
                f"<affiliations node='{NODE}'><affiliation jid='mallory@localhost'"
                " affiliation='owner'/></affiliations>",
            ),
        ):
            for peer in others:
                assert await peer.refused(pubsub(content, OWNER), kind) == FORBIDDEN
            elsewhere = pubsub(content.replace(NODE, "none"), OWNER)
            assert await alice.refused(elsewhere, kind) == NOT_FOUND
        for peer in others:
            assert (
                await peer.refused(pubsub(f"<q:requeue node='{NODE}'/>")) == FORBIDDEN
            )


@pytest.mark.parametrize("model", ["open", "whitelist"])
async def test_affiliations_decide_who_may_publish_and_subscribe(
    queues: Served, model: str
) -> None:
    """queue.md: open, whitelist; an outcast may nothing."""
    may: dict[str, tuple[bool, bool]] = {
        "owner": (True, True),
        "publisher": (True, True),
        "member": (False, True),
        "none": (False, model == "open"),
        "outcast": (False, False),
    }
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE, {"pubsub#access_model": model})
        browse = pubsub(f"<items node='{NODE}'/>")
        options = {"pubsub#queue_requests": "1"}
        for what, (publishes, subscribes) in may.items():
            await alice.affiliate(NODE, bob=what)
            answer = await bob.ask(publish(NODE, item(what)))
            assert (answer.get("type") == "result") is publishes, what
            if not publishes:
                assert Refused.of(answer) == FORBIDDEN
            denied = FORBIDDEN if what == "outcast" else CLOSED
            for request, kind in (
                (subscribe(NODE, bob.jid, options), "set"),
                (browse, "get"),
            ):
                answer = await bob.ask(request, kind)
                assert (answer.get("type") == "result") is subscribes, what
                if not subscribes:
                    assert Refused.of(answer) == denied
                    assert PRIVATE not in ET.tostring(answer, encoding="unicode")
            if what == "none" and model == "whitelist":
                # Without options a stranger does not even get their form.
                assert await bob.refused(subscribe(NODE, bob.jid, None)) == CLOSED
        await alice.done(configure(NODE, {"pubsub#publish_model": "open"}))
        assert await bob.refused(publish(NODE, item("9"))) == FORBIDDEN
        await alice.affiliate(NODE, bob="member")
        await bob.publish(NODE, item("9"))


async def test_affiliations_are_listed_for_oneself_and_for_the_owner(
    queues: Served,
) -> None:
    """XEP-0060 §5.7 and §8.9; the last owner stays."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        await bob.create("bobs")
        await alice.affiliate(NODE, bob="member", carol="outcast")
        for of, wanted in (
            ("", {NODE: "member", "bobs": "owner"}),
            (f" node='{NODE}'", {NODE: "member"}),
        ):
            answer = await bob.done(pubsub(f"<affiliations{of}/>"), "get")
            found = {
                each.get("node"): each.get("affiliation")
                for each in answer.iter(f"{{{PUBSUB}}}affiliation")
            }
            assert found == wanted
        asked = pubsub(f"<affiliations node='{NODE}'/>", OWNER)
        answer = await alice.done(asked, "get")
        assert {
            each.get("jid"): each.get("affiliation")
            for each in answer.iter(f"{{{OWNER}}}affiliation")
        } == {
            "alice@localhost": "owner",
            "bob@localhost": "member",
            "carol@localhost": "outcast",
        }
        for content, refusal in (
            ("jid='alice@localhost' affiliation='none'", NOT_ACCEPTABLE),
            ("jid='alice@localhost' affiliation='member'", NOT_ACCEPTABLE),
            ("jid='bob@localhost' affiliation='king'", BAD_REQUEST),
            ("jid='bob@localhost'", BAD_REQUEST),
            ("jid='bob@localhost' affiliation='publish-only'", UNSUPPORTED),
        ):
            change = (
                f"<affiliations node='{NODE}'><affiliation {content}/></affiliations>"
            )
            assert await alice.refused(pubsub(change, OWNER)) == refusal
        await alice.affiliate(NODE, bob="owner")
        await bob.affiliate(NODE, alice="none")
        assert await alice.refused(asked, "get") == FORBIDDEN


async def test_an_affiliation_is_of_the_account_however_its_jid_is_written(
    queues: Served,
) -> None:
    """RFC 7622: a JID has one form; an outcast in capitals is the same outcast."""
    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        for jid in ("Bob@Localhost", "bob@localhost/some"):
            change = (
                f"<affiliations node='{NODE}'><affiliation jid='{jid}'"
                " affiliation='outcast'/></affiliations>"
            )
            await alice.done(pubsub(change, OWNER))
            options = {"pubsub#queue_requests": "1"}
            assert await bob.refused(subscribe(NODE, bob.jid, options)) == FORBIDDEN
            await alice.affiliate(NODE, bob="none")


async def test_subscriptions_are_ones_own(queues: Served) -> None:
    """XEP-0060 §6: nobody subscribes, looks into or ends those of others."""
    async with peers(queues, "alice/a", "bob/b", "carol/c") as (alice, bob, carol):
        await alice.create(NODE)
        await alice.create("other")
        subid = await bob.subscribe(NODE)
        await bob.subscribe("other")
        await carol.subscribe(NODE)
        who = f"node='{NODE}' jid='{bob.jid}'"
        options = {"pubsub#queue_requests": "1"}
        change = form(f"{PUBSUB}#subscribe_options", options)
        for content, kind in (
            (subscribe(NODE, bob.jid, options), "set"),
            (pubsub(f"<unsubscribe {who}/>"), "set"),
            (pubsub(f"<options {who}/>"), "get"),
            (pubsub(f"<options {who}>{change}</options>"), "set"),
        ):
            assert await carol.refused(content, kind) == INVALID_JID
        for of, wanted in (("", {NODE, "other"}), (f" node='{NODE}'", {NODE})):
            answer = await bob.done(pubsub(f"<subscriptions{of}/>"), "get")
            found = list(answer.iter(f"{{{PUBSUB}}}subscription"))
            assert {each.get("node") for each in found} == wanted
            assert {each.get("jid") for each in found} == {bob.jid}
        asked = pubsub(f"<subscriptions node='{NODE}'/>", OWNER)
        answer = await alice.done(asked, "get")
        found = list(answer.iter(f"{{{OWNER}}}subscription"))
        assert {each.get("jid") for each in found} == {bob.jid, carol.jid}
        wrong = pubsub(f"<unsubscribe {who} subid='no such'/>")
        assert (await bob.refused(wrong)).pubsub == "invalid-subid"
        await bob.done(pubsub(f"<unsubscribe {who} subid='{subid}'/>"))
        for content, kind in (("unsubscribe", "set"), ("options", "get")):
            refused = await bob.refused(pubsub(f"<{content} {who}/>"), kind)
            assert refused == Refused("cancel", "unexpected-request", "not-subscribed")


# -- browse ----------------------------------------------------------------


async def test_a_browse_locks_nothing_and_shows_each_item_once(queues: Served) -> None:
    """AMQP's copy: page by page (XEP-0059), in the order of publishing."""

    async def page(peer: Peer, more: str, of: str = "") -> tuple[list[str], str, str]:
        content = f"<items node='{NODE}'{of}/><set xmlns='{RSM}'>{more}</set>"
        answer = await peer.done(pubsub(content), "get")
        shown = [each.get("id", "") for each in answer.iter(f"{{{PUBSUB}}}item")]
        last = answer.findtext(f".//{{{RSM}}}last", "")
        return shown, last, answer.findtext(f".//{{{RSM}}}count", "")

    async with peers(queues, "alice/a", "bob/b") as (alice, bob):
        await alice.create(NODE)
        ids = [str(number) for number in range(7)]
        await alice.publish(NODE, *map(item, ids))
        shown, after = list[str](), ""
        for size in (3, 3, 1, 0):
            found, last, count = await page(bob, f"<max>3</max><after>{after}</after>")
            assert (len(found), count) == (size, "7")
            shown, after = shown + found, last
            if found:
                # An item that goes meanwhile makes no gap and no repeat.
                assert last
        assert shown == ids
        assert (await page(bob, "<max>0</max>"))[0] == []
        assert (await page(bob, "<max>5</max>", " max_items='2'"))[0] == ids[:2]
        one = await bob.done(
            pubsub(f"<items node='{NODE}'><item id='3'/><item id='no'/></items>"), "get"
        )
        (three,) = one.iter(f"{{{PUBSUB}}}item")
        assert (three.get("id"), "".join(three.itertext())) == ("3", PRIVATE)
        assert (await alice.stats(NODE))["available"] == "7"
        await bob.subscribe(NODE)
        first = await bob.item()
        assert first.q["first-acquirer"] == "true"
        states = {name: q["state"] for name, q in (await bob.browse(NODE)).items()}
        assert states.pop("0") == "acquired"
        assert set(states.values()) == {"available"}
        # Who has it is for owners.
        assert "holder" not in (await bob.browse(NODE))["0"]
        assert (await alice.browse(NODE))["0"]["holder"] == bob.jid


@pytest.mark.parametrize(
    ("content", "refusal"),
    [
        ("<items node='{}' max_items='-1'/>", BAD_REQUEST),
        ("<items node='{}' max_items='many'/>", BAD_REQUEST),
        ("<items node='{}' q:state='all'/>", BAD_REQUEST),
        ("<items node='{}'><item/></items>", BAD_REQUEST),
        ("<items/>", Refused("modify", "bad-request", "nodeid-required")),
        ("<items node='no'/>", NOT_FOUND),
        (f"<items node='{{}}'/><set xmlns='{RSM}'><max>x</max></set>", BAD_REQUEST),
        (
            f"<items node='{{}}'/><set xmlns='{RSM}'><before/></set>",
            Refused("cancel", "feature-not-implemented"),
        ),
    ],
)
async def test_a_browse_that_is_not_understood_is_refused(
    queues: Served, content: str, refusal: Refused
) -> None:
    """Not answered by all that there is."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        assert await alice.refused(pubsub(content.format(NODE)), "get") == refusal


@pytest.mark.parametrize("state", ["live", "accepted", "dead"])
@pytest.mark.parametrize(
    "after", ["no number", "-1", "9" * 18, "9" * 25, "9" * 1024, "²"]
)
async def test_a_cursor_that_we_did_not_make_harms_nobody(
    queues: Served, state: str, after: str
) -> None:
    """It is opaque to clients, and whatever comes is answered."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        content = (
            f"<items node='{NODE}' q:state='{state}'/>"
            f"<set xmlns='{RSM}'><after>{after}</after></set>"
        )
        answer = await alice.ask(pubsub(content), "get")
        if answer.get("type") == "error":
            assert Refused.of(answer) in {BAD_REQUEST, NOT_FOUND}
        await alice.publish(NODE, item("1"))


async def test_a_large_browse_is_cut_to_what_goes_through_a_stream(
    queues: Served,
) -> None:
    """An answer over the server's limit would end the connection of everybody."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        for number in range(5):
            await alice.publish(NODE, item(str(number), "x" * 90_000))
        shown, after = list[str](), ""
        while len(shown) < 5:
            content = (
                f"<items node='{NODE}'/><set xmlns='{RSM}'><after>{after}</after></set>"
            )
            answer = await alice.done(pubsub(content), "get")
            found = [each.get("id", "") for each in answer.iter(f"{{{PUBSUB}}}item")]
            assert found
            assert answer.findtext(f".//{{{RSM}}}count") == "5"
            shown, after = shown + found, answer.findtext(f".//{{{RSM}}}last", "")
        assert shown == ["0", "1", "2", "3", "4"]


# -- what is not offered, and what is --------------------------------------


@pytest.mark.parametrize(
    ("content", "xmlns", "kind", "feature"),
    [
        ("<default/>", PUBSUB, "get", "retrieve-default-sub"),
        ("<collection node='{}'/>", OWNER, "set", "collections"),
        ("<redirect/>", OWNER, "set", "redirect"),
        (
            "<subscriptions node='{}'><subscription jid='bob@localhost'"
            " subscription='none'/></subscriptions>",
            OWNER,
            "set",
            "manage-subscriptions",
        ),
        (
            "<publish node='{}'><item/></publish><publish-options>"
            "<x xmlns='jabber:x:data' type='submit'/></publish-options>",
            PUBSUB,
            "set",
            "publish-options",
        ),
    ],
)
async def test_what_is_not_offered_is_unsupported(
    queues: Served, content: str, xmlns: str, kind: str, feature: str
) -> None:
    """XEP-0060: feature-not-implemented, and which."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        answer = await alice.ask(pubsub(content.format(NODE), xmlns), kind)
        assert Refused.of(answer) == UNSUPPORTED
        (unsupported,) = answer.iter(f"{{{ERRORS}}}unsupported")
        assert unsupported.get("feature") == feature


async def test_the_service_says_what_it_is_and_has(queues: Served) -> None:
    """XEP-0030: identity, features, nodes; a node says its own."""
    async with peers(queues, "alice/a") as (alice,):
        for name in ("b", "a", "c"):
            await alice.create(name)
        answer = await alice.done(f"<query xmlns='{DISCO_INFO}'/>", "get")
        identities = {
            (each.get("category"), each.get("type"))
            for each in answer.iter(f"{{{DISCO_INFO}}}identity")
        }
        assert ("pubsub", "service") in identities
        features = {each.get("var") for each in answer.iter(f"{{{DISCO_INFO}}}feature")}
        names = (
            "create-nodes",
            "publish",
            "subscribe",
            "purge-nodes",
            "access-whitelist",
        )
        assert features >= {
            PUBSUB,
            QUEUEING,
            EXTENSIONS,
            *(f"{PUBSUB}#{n}" for n in names),
        }
        answer = await alice.done(f"<query xmlns='{DISCO_ITEMS}'/>", "get")
        found = [each.attrib for each in answer.iter(f"{{{DISCO_ITEMS}}}item")]
        assert found == [{"jid": queues.jid, "node": name} for name in "abc"]
        paged = (
            f"<query xmlns='{DISCO_ITEMS}'><set xmlns='{RSM}'><max>1</max>"
            "<after>a</after></set></query>"
        )
        answer = await alice.done(paged, "get")
        (second,) = answer.iter(f"{{{DISCO_ITEMS}}}item")
        assert second.get("node") == "b"
        answer = await alice.done(f"<query xmlns='{DISCO_INFO}' node='a'/>", "get")
        (identity,) = answer.iter(f"{{{DISCO_INFO}}}identity")
        assert (identity.get("category"), identity.get("type")) == ("pubsub", "leaf")
        features = {each.get("var") for each in answer.iter(f"{{{DISCO_INFO}}}feature")}
        assert features >= {PUBSUB, QUEUEING}
        query = f"<query xmlns='{DISCO_INFO}' node='none'/>"
        assert await alice.refused(query, "get") == NOT_FOUND


async def test_another_address_of_the_component_is_not_the_service(
    queues: Served,
) -> None:
    """It answers, but not for queues; no request is left without an answer."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        for to in (f"someone@{queues.jid}", f"{queues.jid}/resource"):
            for content, kind in (
                (publish(NODE, item("1")), "set"),
                (create("other"), "set"),
                (retract(NODE, "1"), "get"),
            ):
                answer = await alice.ask(content, kind, to)
                assert (answer.get("type"), answer.get("from")) == ("error", to)
        assert await alice.browse(NODE) == {}
        assert await alice.refused(publish("other", item("1"))) == NOT_FOUND


async def test_an_account_serves_as_well_as_a_component(
    server: Prosody, tmp_path: Path
) -> None:
    """At its full JID; presence is directed to it, and events come from it."""
    jid = "carol@localhost/queue"
    async with (
        served(server, tmp_path, jid=jid) as queues,
        peers(queues, "alice/a", "bob/b", "bob/c") as (alice, bob, other),
    ):
        await alice.create(NODE, {"queue#backoff": "0"})
        features = await alice.done(f"<query xmlns='{DISCO_INFO}'/>", "get")
        assert QUEUEING in {
            each.get("var") for each in features.iter(f"{{{DISCO_INFO}}}feature")
        }
        items = await alice.done(f"<query xmlns='{DISCO_ITEMS}'/>", "get")
        (node,) = items.iter(f"{{{DISCO_ITEMS}}}item")
        assert node.attrib == {"jid": jid, "node": NODE}
        await bob.be_present()
        await bob.subscribe(NODE)
        await alice.publish(NODE, item("1"), item("2"))
        message = await bob.items()
        assert (message.get("from"), message.get("to")) == (jid, bob.jid)
        await bob.done(unlock(NODE, "1"))
        two = await bob.item()
        await queues.restart()
        await bob.be_present()
        assert (await bob.item()).named == two.named
        await bob.cut()
        await alice.until_stats(NODE, subscribers="0", available="2")
        await other.subscribe(NODE, 2)
        assert {(await other.item()).id for _ in range(2)} == {"1", "2"}
        content = (
            "<assured xmlns='urn:xmpp:qos' msgId='1'><message xmlns='jabber:client'>"
            f"{publish(NODE, item('3'))}</message></assured>"
        )
        await alice.done(content)
        await alice.done("<deliver xmlns='urn:xmpp:qos' msgId='1'/>")
        assert "3" in await alice.browse(NODE)


async def test_the_fields_are_those_of_the_issue() -> None:
    """A guard for the table above: a field without a row would not be tested."""
    text = (Path(__file__).parents[2] / "qos/core/node_options.py").read_text()
    table = text.partition("NODE_FIELDS")[2].partition("SUBSCRIBE_FIELDS")[0]
    found = set(re.findall(r'"((?:queue|pubsub)#\w+)"', table))
    assert found - {"queue#dead_letter_node"} == set(FIELDS)
