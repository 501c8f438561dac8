"""XEP-0060 §8 around the queue: nodes are created, configured, and sent whole forms."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from qos.core.queue.node_options import NODE_FIELDS
from qos.testing.prosody import Prosody
from queue_service import (
    CONFLICT,
    DATA,
    FORBIDDEN,
    NODE_CONFIG,
    NOT_ACCEPTABLE,
    NOT_FOUND,
    OWNER,
    PUBSUB,
    Peer,
    Served,
    form,
    item,
    peers,
    publish,
    pubsub,
    served,
    values_of,
)

NODE = "orders"

pytestmark = pytest.mark.asyncio(loop_scope="module")


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
    """XEP-0060 §8.1.2: a different one each time."""
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
    """`--creators`: accounts, with any resource."""
    creators = ["alice@localhost/some", "carol@localhost"]
    async with (
        served(server, tmp_path, creators=creators) as queues,
        peers(queues, "alice/a", "bob/b") as (alice, bob),
    ):
        await alice.create(NODE)
        assert await bob.refused(create("other")) == FORBIDDEN
        # The error does not tell which nodes exist.
        assert await bob.refused(create(NODE)) == FORBIDDEN


async def test_a_node_is_created_with_its_configuration(queues: Served) -> None:
    """XEP-0060 §8.1.3; other fields have their defaults, and all of it is durable."""
    async with peers(queues, "alice/a") as (alice,):
        answer = await alice.done(pubsub("<default/>", OWNER), "get")
        defaults = values_of(answer)
        assert defaults["FORM_TYPE"] == NODE_CONFIG
        changes = {"queue#lock_timeout": "5", "pubsub#access_model": "open"}
        await alice.create(NODE, changes)
        await alice.done(create("plain", {}))
        for _ in range(2):
            assert await configuration(alice, NODE) == {**defaults, **changes}
            assert await configuration(alice, "plain") == defaults
            await queues.restart()


#: The fields of the form, with one good value each and some bad ones.
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
    "queue#keep_items": ("0", ("-1", "100001", "text", "", "1.5")),
    "queue#keep_seconds": ("60", ("0", "-1", "1000000000", "text")),
}

#: Fields that name other nodes, or that are set when a node is created.
OTHERS = {"queue#dead_letter_node", "queue#node_type", "queue#topic", "queue#selector"}


@pytest.mark.parametrize("field", FIELDS)
async def test_a_field_takes_its_values_and_no_other(
    queues: Served, field: str
) -> None:
    """A bad value is not-acceptable, and nothing of the form is done."""
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


async def test_no_field_of_the_form_is_left_out() -> None:
    """A check of the table above: a field without a row would not be tested."""
    fields = {field.var for field in NODE_FIELDS}
    assert fields - OTHERS == set(FIELDS)


async def test_a_whole_form_can_be_sent_back_with_fields_of_other_services(
    queues: Served,
) -> None:
    """Clients return the form that they got, with fields known from other services."""
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
    """Two values in a field and a misspelt name are mistakes, not defaults."""
    async with peers(queues, "alice/a") as (alice,):
        await alice.create(NODE)
        before = await configuration(alice, NODE)
        request = pubsub(f"<configure node='{NODE}'>{content}</configure>", OWNER)
        refused = await alice.refused(request)
        assert (refused.type, refused.condition) == ("modify", "bad-request")
        assert await configuration(alice, NODE) == before
