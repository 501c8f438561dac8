"""Each verb of `queue`, against the service that `queue serve` runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qos.core.queue.node_options import NODE_FIELDS
from qos.testing.server import LoopbackServer

if TYPE_CHECKING:
    from tests.cli.conftest import Commands, Ended, Running

NUMBERS = (
    *("available", "acquired", "delayed", "dead", "accepted", "subscribers"),
    "oldest_seconds",
)

QUEUES = "queue.localhost"

#: Verbs for the owner only, with their arguments.
OWNERS = (
    ("configure",),
    ("configure", "--set", "ttl=5"),
    ("delete",),
    ("purge",),
    ("affiliate",),
    ("affiliate", "bob@localhost=owner"),
    ("dead requeue",),
)

#: Verbs that others may use too, if they have the right.
OTHERS = (("publish", "--payload", "<x/>"), ("browse",), ("stats",), ("dead list",))


async def each(
    commands: Commands, verbs: Sequence[tuple[str, ...]], *more: str, user: str
) -> dict[tuple[str, ...], Ended]:
    """Run all of these, two at a time: there are many, and each takes a second."""
    slots = asyncio.Semaphore(2)

    async def one(words: tuple[str, ...]) -> Ended:
        patience = ("--deadline", "2") if words[0] == "publish" else ()
        async with slots:
            return await commands.queue(*words, *patience, *more, user=user)

    return dict(zip(verbs, await asyncio.gather(*map(one, verbs)), strict=True))


async def test_a_queue_is_made_filled_looked_at_and_removed(queues: Commands) -> None:
    """The whole life of a queue, as its owner sees it."""
    item = ("--payload", "<order xmlns='urn:x' number='7'/>", "--id", "first")
    published = await queues.queue("publish", *item, "--priority", "9")
    assert (published.status, published.out) == (0, [{"id": "first"}]), published.err
    later = ("--payload", "<later xmlns='urn:x'/>", "--delay", "600")
    assert (await queues.queue("publish", *later)).status == 0
    browsed = await queues.queue("browse")
    assert (browsed.status, browsed.err) == (0, "")
    first, second = browsed.out
    assert first.pop("published")
    assert first == {
        "id": "first",
        "state": "available",
        "priority": 9,
        "delivery_count": 0,
        "publisher": "alice@localhost",
        "payload": "<order xmlns='urn:x' number='7'/>",
    }
    assert (second["state"], second["payload"]) == (
        *("delayed", "<later xmlns='urn:x'/>"),
    )
    (stats,) = (await queues.queue("stats")).out
    assert all(name in stats for name in NUMBERS)
    assert (stats["available"], stats["delayed"], stats["acquired"]) == (1, 1, 0)
    assert isinstance(stats["oldest_seconds"], float)
    assert (await queues.queue("purge")).status == 0
    (stats,) = (await queues.queue("stats")).out
    assert (stats["available"], stats["delayed"], stats["oldest_seconds"]) == (
        *(0, 0),
        None,
    )
    deleted = await queues.queue("delete")
    assert (deleted.status, deleted.out, deleted.err) == (0, [], "")
    gone = await queues.queue("stats")
    assert (gone.status, gone.out) == (1, [])
    assert gone.err == (
        f"xmpp-qos: {QUEUES} refused to describe 'orders': item-not-found: there is no "
        "queue 'orders', or this account may not see it\n"
    )
    again = await queues.queue("delete")
    assert (again.status, again.out) == (1, [])
    assert again.err == (
        f"xmpp-qos: {QUEUES} refused to delete: item-not-found: there is no node "
        "'orders'\n"
    )


async def test_a_queue_is_configured_by_the_names_of_its_form(queues: Commands) -> None:
    """With or without their prefix; fields that are not set stay as they are."""
    settings = ("--set", "lock_timeout=30", "--set", "pubsub#access_model=whitelist")
    changed = await queues.queue("configure", *settings)
    assert (changed.status, changed.out, changed.err) == (0, [], "")
    assert (await queues.queue("configure", "--set", "queue#ttl=60")).status == 0
    (config,) = (await queues.queue("configure")).out
    expected = {each.var.partition("#")[2]: each.default for each in NODE_FIELDS}
    assert config == {
        **expected,
        "lock_timeout": "30",
        "access_model": "whitelist",
        "ttl": "60",
    }


async def test_a_queue_is_created_with_its_configuration(
    commands: Commands, serving: Running
) -> None:
    """Not even for a moment does it exist without it."""
    settings = ("--set", "max_items=5", "--set", "access_model=whitelist")
    created = await commands.queue("create", *settings)
    assert (created.status, created.out) == (0, [{"node": "orders"}])
    (config,) = (await commands.queue("configure")).out
    assert (config["max_items"], config["access_model"]) == ("5", "whitelist")
    again = await commands.queue("create")
    assert (again.status, again.out) == (1, [])
    assert "conflict" in again.err
    assert len(again.notes) == 1


async def test_a_queue_of_ours_that_is_there_as_asked_may_be_created_again(
    commands: Commands, serving: Running
) -> None:
    """A script that runs a second time goes on; nobody gets a queue of others by it."""
    settings = ("--set", "max_items=5")
    for _ in range(2):
        created = await commands.queue("create", *settings)
        assert (created.status, created.out) == (0, [{"node": "orders"}]), created.err
    assert created.notes == [
        "xmpp-qos: 'orders' is there already, with this configuration"
    ]
    for words, user in (
        (("--set", "max_items=6"), "alice"),
        ((), "alice"),
        (settings, "bob"),
    ):
        other = await commands.queue("create", *words, user=user)
        assert (other.status, other.out) == (1, [])
        assert "conflict" in other.err


async def test_a_topic_is_created_and_a_queue_from_it(
    commands: Commands, serving: Running
) -> None:
    """Its items are in both."""
    assert (await commands.queue("create", "--topic")).status == 0
    words = ("queue", "create", QUEUES, "audit", "--from", "orders")
    audit = await commands.run(*words, "--set", "selector=n = 1", user="alice")
    assert (audit.status, audit.out) == (0, [{"node": "audit"}]), audit.err
    published = await commands.queue(
        "publish", "--payload", "<x/>", "--property", "n=1", "--id", "a"
    )
    assert published.status == 0
    for node in ("orders", "audit"):
        browsed = await commands.run("queue", "browse", QUEUES, node, user="alice")
        assert [item["id"] for item in browsed.out] == ["a"]
    (config,) = (await commands.queue("configure")).out
    assert config["node_type"] == "topic"
    changed = await commands.queue("configure", "--set", "node_type=queue")
    assert (changed.status, changed.out) == (1, [])
    assert "queue#node_type is set when a node is created" in changed.err


async def test_a_topic_is_deleted_with_its_queues_only_if_that_is_said(
    commands: Commands, serving: Running
) -> None:
    """Others may have made them, and what they hold is lost."""
    words = ("queue", "create", QUEUES, "audit", "--from", "orders")
    assert (await commands.queue("create", "--topic")).status == 0
    assert (await commands.run(*words, user="alice")).status == 0
    kept = await commands.queue("delete")
    assert (kept.status, kept.out) == (1, [])
    assert kept.notes == [
        "xmpp-qos: nothing was deleted: --with-queues also deletes the queue that copies "
        "from topic 'orders', with all that is in there"
    ]
    assert (await commands.queue("delete", "--with-queues")).status == 0
    assert (await commands.queue("create", "--topic")).status == 0
    assert (await commands.queue("delete")).status == 0, "a topic without queues"


async def test_a_publish_tells_new_items_from_repeated_ones(queues: Commands) -> None:
    """A script that is started again sees what it had done before."""
    words = ("publish", "--text", "a", "--id", "a")
    assert (await queues.queue(*words)).out == [{"id": "a"}]
    assert (await queues.queue(*words)).out == [{"id": "a", "repeated": True}]


async def test_who_is_nobody_is_refused(queues: Commands) -> None:
    """In one line, as if the queue were not there; nothing is changed."""
    closed = ("--set", "access_model=whitelist")
    assert (await queues.queue("configure", *closed)).status == 0
    (config,) = (await queues.queue("configure")).out
    tried = await each(queues, (*OWNERS, *OTHERS), user="mallory")
    for words, ended in tried.items():
        assert (ended.status, ended.out) == (1, []), words
        assert len(ended.notes) == 1, ended.err
        if words != ("stats",):
            assert ended.err.startswith("xmpp-qos: queue.localhost refused to ")
            assert "item-not-found" in ended.err, words
    assert (await queues.queue("configure")).out == [config]
    assert len((await queues.queue("affiliate")).out) == 1


async def test_a_queue_that_is_not_there_is_told(
    commands: Commands, serving: Running
) -> None:
    """A name is easily misspelt."""
    for ended in (await each(commands, (*OWNERS, *OTHERS), user="alice")).values():
        assert (ended.status, ended.out) == (1, [])
        assert "item-not-found" in ended.err
        assert len(ended.notes) == 1, ended.err


async def test_an_affiliation_lets_others_in_and_out(queues: Commands) -> None:
    """Bob may publish as long as he is a publisher, not before or after."""
    publish = ("publish", "--payload", "<x/>")
    assert (await queues.queue(*publish, user="bob")).status == 1
    words = ("bob@localhost=publisher", "mallory@localhost=outcast")
    changed = await queues.queue("affiliate", *words)
    assert (changed.status, changed.out, changed.err) == (0, [], "")
    listed = (await queues.queue("affiliate")).out
    assert {str(line["jid"]): line["affiliation"] for line in listed} == {
        "alice@localhost": "owner",
        "bob@localhost": "publisher",
        "mallory@localhost": "outcast",
    }
    assert (await queues.queue(*publish, user="bob")).status == 0
    assert (await queues.queue("affiliate", "bob@localhost=none")).status == 0
    assert (await queues.queue(*publish, user="bob")).status == 1


async def test_a_long_queue_is_shown_whole_or_as_far_as_asked(queues: Commands) -> None:
    """A service answers in pages."""
    lines = b"".join(b"%d\n" % number for number in range(450))
    assert (await queues.queue("publish", "--lines", input_=lines)).status == 0
    browsed = await queues.queue("browse")
    payloads = [f"<text xmlns='xmpp-qos:text:0'>{n}</text>" for n in range(450)]
    assert [item["payload"] for item in browsed.out] == payloads
    some = await queues.queue("browse", "--max", "120")
    assert [item["payload"] for item in some.out] == payloads[:120]


async def test_the_dead_are_listed_and_given_a_new_life(queues: Commands) -> None:
    """An item in the dead-letter node is known by its former id."""
    service = ("queue.localhost", "letters")
    assert (await queues.run("queue", "create", *service, user="alice")).status == 0
    letters = await queues.queue("configure", "--set", "dead_letter_node=letters")
    assert letters.status == 0, letters.err
    words = ("--payload", "<late xmlns='urn:x'/>", "--id", "late", "--ttl", "0.01")
    assert (await queues.queue("publish", *words)).status == 0
    listed = await queues.queue("dead list")
    while not listed.out:
        assert listed.status == 0, listed.err
        listed = await queues.queue("dead list")
    (item,) = listed.out
    assert (item["id"], item["payload"]) == ("late", "<late xmlns='urn:x'/>")
    assert "expired" in str(item["reason"])
    assert item["state"] == "dead"
    moved = await queues.run("queue", "browse", *service, user="alice")
    assert [(each["origin"], each["origin_id"]) for each in moved.out] == [
        ("orders", "late")
    ]
    assert [each["state"] for each in moved.out] == ["available"]
    wrong = await queues.queue("dead requeue", "nobody")
    assert (wrong.status, wrong.out) == (1, [])
    assert "item-not-found" in wrong.err
    none = await queues.run("queue", "dead", "requeue", *service, user="alice")
    assert (none.status, none.out) == (0, [])
    assert "no item has died in 'letters'" in none.err
    right = await queues.queue("dead requeue", "late")
    assert (right.status, right.out) == (0, [{"id": "late"}]), right.err
    moved = await queues.run("queue", "browse", *service, user="alice")
    assert (moved.status, moved.out) == (0, [])


async def test_a_service_that_is_away_has_certainly_done_nothing(
    commands: Commands,
) -> None:
    """Its server answers for it."""
    for ended in (await each(commands, (*OWNERS, *OTHERS), user="alice")).values():
        assert (ended.status, ended.out) == (1, [])
        assert "service-unavailable" in ended.err


async def test_without_an_answer_it_is_in_doubt(
    queues: Commands, serving: Running
) -> None:
    """A service that hangs may still do it."""
    serving.process.send_signal(signal.SIGSTOP)
    tried = await each(queues, (*OWNERS, *OTHERS), "--timeout", "1", user="alice")
    for ended in tried.values():
        assert (ended.status, ended.out) == (3, [])
        assert "queue.localhost did not answer" in ended.err
        assert "may have been done" in ended.err


async def test_without_a_server_there_is_no_connection(
    server: LoopbackServer, queues: Commands
) -> None:
    """Status 4, as for the other commands."""
    await server.stop()
    words = ("queue", "stats", "queue.localhost", "orders")
    running = await queues.start(*words, "--connect-timeout", "3600", user="alice")
    await running.note("trying again")
    running.turn_clock()
    ended = await running.end()
    assert (ended.status, ended.out) == (4, [])
    assert "Connection refused; gave up after 3600 s" in ended.err


async def test_it_can_be_stopped(queues: Commands, serving: Running) -> None:
    """SIGTERM ends a command that waits for an answer."""
    serving.process.send_signal(signal.SIGSTOP)
    running = await queues.start(
        *("queue", "stats", "queue.localhost", "orders", "--debug"), user="alice"
    )
    await running.note("")
    running.process.send_signal(signal.SIGTERM)
    ended = await running.end()
    assert (ended.status, ended.out) == (130, [])
    assert "xmpp-qos: stopped" in ended.notes


async def test_whoever_is_logged_in_with_that_resource_stays(queues: Commands) -> None:
    """One config file serves `listen`, and a look at a queue meanwhile."""
    listener = await queues.listen("alice", "--count", "1")
    assert (await queues.queue("stats")).status == 0
    sent = await queues.run("send", "alice@localhost/1", "--body", "on", user="bob")
    assert sent.status == 0, sent.err
    ended = await listener.end()
    assert [line["body"] for line in ended.out] == ["on"]
    assert "conflict" not in ended.err


async def test_list_shows_each_queue_with_its_numbers(queues: Commands) -> None:
    """For users who have forgotten the name of a queue, or whether it is a topic."""
    words = ("queue", "create", QUEUES, "a & b")
    assert (await queues.run(*words, user="alice")).status == 0
    topic = ("queue", "create", QUEUES, "prices", "--topic")
    assert (await queues.run(*topic, user="alice")).status == 0
    assert (await queues.queue("publish", "--payload", "<x/>")).status == 0
    listed = await queues.run("queue", "list", QUEUES, user="alice")
    assert (listed.status, listed.err) == (0, "")
    assert [(line["node"], line["node_type"]) for line in listed.out] == [
        ("a & b", "queue"),
        ("orders", "queue"),
        ("prices", "topic"),
    ]
    assert [line["available"] for line in listed.out] == [0, 1, 0]
    assert all(set(line) >= {"node", *NUMBERS} for line in listed.out)


async def test_watch_prints_the_numbers_again_until_it_is_stopped(
    queues: Commands,
) -> None:
    """Or until a given number of lines."""
    words = ("queue", "watch", QUEUES, "orders", "--interval", "0.2")
    watching = await queues.start(*words, user="alice")
    assert (await watching.line())["available"] == 0
    assert (await queues.queue("publish", "--payload", "<x/>")).status == 0
    while (line := await watching.line())["available"] == 0:
        assert set(line) >= {"time", *NUMBERS}
    watching.process.send_signal(signal.SIGINT)
    assert (await watching.end()).status == 130
    counted = await queues.run(*words, "--count", "2", user="alice")
    assert (counted.status, len(counted.out)) == (0, 2)


async def test_watch_of_no_queue_is_refused(queues: Commands) -> None:
    """At once, without repeating the request."""
    words = ("queue", "watch", QUEUES, "none")
    refused = await queues.run(*words, user="alice")
    assert (refused.status, refused.out, len(refused.notes)) == (1, [], 1)
