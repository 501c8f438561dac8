"""The stages of commands: what each shows, takes and asks of the service."""

from __future__ import annotations

import itertools

import pytest

from command_console import Console
from qos.core.queue import command_forms, command_inputs, command_outcomes
from qos.core.queue.command_inputs import checked_action, for_command
from qos.core.queue.command_session import (
    CommandRefusal,
    CountNodes,
    FindNodes,
    Reply,
    Session,
    Stage,
    actions_of,
)
from qos.core.queue.command_table import (
    COMMANDS,
    Command,
    Right,
    available,
    command_at,
    rights_at,
)
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import (
    Configure,
    Create,
    Delete,
    GetConfigure,
    Items,
    Purge,
    Refusal,
    Requeue,
    SetAffiliations,
    Subscriptions,
)
from queue_world import BEE, NODE, OWNER, STRANGER, World

PRIVATE = {"queue#backoff": "0"}


@pytest.fixture
def world() -> World:
    return World(PRIVATE)


@pytest.fixture
def boss(world: World) -> Console:
    return Console(world, OWNER)


def refusal(console: Console, action: str = "", **values: str) -> tuple[str, str]:
    """The specific condition of a refusal, or the general one; and its text."""
    before = console.session
    with pytest.raises(Refusal) as caught:
        console.go_on(action, **values)
    assert console.session == before, "a refused request changes nothing"
    error = caught.value
    if isinstance(error, CommandRefusal):
        return error.command, str(error)
    return error.condition, str(error)


def die(world: World, *item_ids: str, node: str = NODE) -> None:
    world.publish(*item_ids, by=OWNER, node=node)
    world.subscribe(OWNER, len(item_ids), node=node)
    for item_id in item_ids:
        world.reject(item_id, OWNER, node=node)
    world.unsubscribe(OWNER, node=node)


# -- the table -------------------------------------------------------------


def test_each_command_has_a_row_and_a_node_of_its_own() -> None:
    assert list(COMMANDS) == list(Command)
    assert [command_at(command.node) for command in Command] == list(Command)
    assert command_at("xmpp-qos:admin#shutdown") is None
    assert Command.DEAD.node == "xmpp-qos:admin#dead"


@pytest.mark.parametrize(
    ("affiliation", "rights"),
    [
        (Affiliation.OWNER, {Right.USE, Right.SUBSCRIBE, Right.OWN}),
        (Affiliation.PUBLISHER, {Right.USE, Right.SUBSCRIBE}),
        (Affiliation.MEMBER, {Right.USE, Right.SUBSCRIBE}),
        (Affiliation.PUBLISH_ONLY, {Right.USE}),
        (Affiliation.OUTCAST, set()),
        (Affiliation.NONE, set()),
    ],
)
def test_rights_are_those_of_the_affiliation(
    world: World, affiliation: Affiliation, rights: set[Right]
) -> None:
    """XEP-0060 §4.1, as for all doors."""
    world.create("news", {**PRIVATE, "queue#node_type": "topic"})
    for node in (NODE, "news"):
        world.ask(SetAffiliations(node, {"bee@x": affiliation}), OWNER)
    topic = {Right.COPY} if Right.SUBSCRIBE in rights else set()
    seen: set[Right] = set()
    may = rights_at(seen)
    for name, expected in ((NODE, rights), ("news", rights | topic)):
        queue = world.core.nodes[name]
        assert not may(queue.node, queue.options, "bee@x")
        assert seen == expected
    needed = {COMMANDS[command].right for command in available(seen, creates=False)}
    assert needed == seen


def test_who_may_create_nodes_is_offered_that() -> None:
    assert available((), creates=True) == [Command.CREATE]
    assert available((), creates=False) == []


@pytest.mark.parametrize("command", Command)
def test_a_stranger_begins_no_command(world: World, command: Command) -> None:
    """He gets no form, and his are not read."""
    console = Console(world, STRANGER)
    with pytest.raises(Refusal, match="cat@z") as caught:
        console.execute(command)
    assert (caught.value.condition, caught.value.type) == ("forbidden", "cancel")
    assert console.jobs == [FindNodes(COMMANDS[command].right)]
    assert console.session is None


# -- actions ---------------------------------------------------------------

OFFERED = {
    (Command.QUEUE, Stage.CHOOSE): ("complete",),
    (Command.WORKERS, Stage.CHOOSE): ("complete",),
    (Command.BROWSE, Stage.CHOOSE): ("next",),
    (Command.DEAD, Stage.CHOOSE): ("next",),
    (Command.CONFIGURE, Stage.CHOOSE): ("next",),
    (Command.PURGE, Stage.CHOOSE): ("next",),
    (Command.DELETE, Stage.CHOOSE): ("next",),
    (Command.QUEUES, Stage.PAGE): ("next", "complete"),
    (Command.BROWSE, Stage.PAGE): ("next", "complete"),
    (Command.DEAD, Stage.SELECT): ("complete",),
    (Command.CREATE, Stage.FILL): ("complete",),
    (Command.CONFIGURE, Stage.FILL): ("complete",),
    (Command.PURGE, Stage.CONFIRM): ("complete",),
    (Command.DELETE, Stage.CONFIRM): ("complete",),
}


@pytest.mark.parametrize(
    ("place", "action"),
    [
        *itertools.product(
            OFFERED, ("", "execute", "next", "prev", "complete", "cancel")
        )
    ],
)
def test_each_action_at_each_stage(place: tuple[Command, Stage], action: str) -> None:
    """XEP-0050 §3.4: execute is the default, and cancel is always allowed."""
    command, stage = place
    session = Session(session_id="s", account="a@b", command=command, stage=stage)
    offered = OFFERED[place]
    assert actions_of(session) == offered
    if action in {"", "execute"}:
        assert checked_action(session, action) == offered[0]
    elif action in offered or action == "cancel":
        assert checked_action(session, action) == action
    else:
        with pytest.raises(CommandRefusal, match="is not possible now") as caught:
            checked_action(session, action)
        assert caught.value.command == "bad-action"


@pytest.mark.parametrize("session", [None, Session(
    session_id="s", account="a@b", command=Command.QUEUE, stage=Stage.CHOOSE
)])  # fmt: skip
def test_an_unknown_action_is_malformed(session: Session | None) -> None:
    with pytest.raises(CommandRefusal, match="'Execute'") as caught:
        checked_action(session, "Execute")
    assert caught.value.command == "malformed-action"


@pytest.mark.parametrize("action", ["next", "prev", "complete", "cancel"])
def test_only_execute_begins_a_command(action: str) -> None:
    assert checked_action(None, "execute") == "execute"
    with pytest.raises(CommandRefusal, match="needs its sessionid") as caught:
        checked_action(None, action)
    assert caught.value.command == "bad-action"


def test_a_canceled_command_does_nothing(boss: Console) -> None:
    boss.execute(Command.PURGE)
    jobs = list(boss.jobs)
    assert boss.go_on("cancel") == Reply("canceled")
    assert boss.jobs == jobs


# -- forms -----------------------------------------------------------------


def test_a_missing_form_and_a_missing_name_are_refused(boss: Console) -> None:
    boss.execute(Command.QUEUE)
    with pytest.raises(CommandRefusal, match="the form is missing") as caught:
        boss.send("", None)
    assert caught.value.command == "bad-payload"
    for values in ({}, {"node": ""}):
        kind, text = refusal(boss, **values)
        assert kind == "bad-payload"
        assert "fill in node" in text
    boss.go_on(node=NODE)
    assert boss.reply.status == "completed"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"node": (NODE,), "colour": ("red",)}, "no field 'colour'"),
        ({"node": (NODE, NODE)}, "node has too many values"),
        ({"node": ("n" * 1025,)}, "at most 1024 characters"),
        ({"node": ("n" * 65_537,)}, "over the limit of 65536"),
    ],
)
def test_a_hostile_form_is_refused(
    boss: Console, values: dict[str, tuple[str, ...]], text: str
) -> None:
    boss.execute(Command.QUEUE)
    with pytest.raises(CommandRefusal, match=text) as caught:
        boss.send("", values)
    assert caught.value.command == "bad-payload"


def test_a_wrong_value_is_the_payloads_fault_and_the_form_can_be_sent_again(
    boss: Console,
) -> None:
    boss.execute(Command.CONFIGURE)
    boss.go_on(node=NODE)
    kind, text = refusal(boss, queue__ttl="soon")
    assert (kind, "queue#ttl must be" in text) == ("bad-payload", True)
    assert boss.go_on(queue__ttl="5").status == "completed"


def test_other_refusals_stay_as_they_are() -> None:
    gone = Refusal("gone", condition="item-not-found", type="cancel")
    assert for_command(gone) is gone
    mine = CommandRefusal("a", condition="b", type="modify", command="bad-action")
    assert for_command(mine) is mine


def test_many_names_are_typed_and_few_are_chosen_from(
    world: World, boss: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    boss.execute(Command.QUEUE)
    (field,) = boss.form.fields
    assert (field.kind, field.options, field.values) == (
        "list-single",
        ((NODE, NODE),),
        (NODE,),
    )
    world.create("b" * 20)
    for limit in ("CHOICES_MAX", "CHOICES_CHARS_MAX"):
        with monkeypatch.context() as patched:
            patched.setattr(command_forms, limit, 1)
            boss.execute(Command.QUEUE)
        (field,) = boss.form.fields
        assert (field.kind, field.options) == ("text-single", ())
        assert boss.form.instructions.startswith("There are 2 queues")


# -- commands that show ----------------------------------------------------


def test_queues_are_shown_in_pages(
    world: World, boss: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b", "c", "d" * 20, "e"):
        world.create(name)
    assert boss.execute(Command.QUEUES).status == "completed"
    assert [row[0] for row in boss.table.rows] == ["b", "c", "d" * 20, "e", NODE]
    assert boss.table.rows[0] == ("b", "0", "0", "0", "0", "0", "")
    monkeypatch.setattr(command_outcomes, "QUEUES_PAGE_MAX", 2)
    monkeypatch.setattr(command_outcomes, "_PAGE_CHARS_MAX", 10)
    pages = []
    boss.execute(Command.QUEUES)
    while boss.reply.status == "executing":
        assert boss.reply.actions == ("next", "complete")
        pages.append(boss.names)
        # A table is no form: whatever comes with it is not read.
        boss.send("next", {"nonsense": ("1",)})
    assert pages == [["b", "c"], ["d" * 20]]
    assert [row[0] for row in boss.table.rows] == ["e", NODE]
    boss.execute(Command.QUEUES)
    assert boss.go_on("complete") == Reply("completed")


def test_a_last_page_that_is_gone_is_empty(
    world: World, boss: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The right to the command was that of the beginning."""
    monkeypatch.setattr(command_outcomes, "QUEUES_PAGE_MAX", 1)
    world.create("z")
    boss.execute(Command.QUEUES)
    assert boss.reply.status == "executing"
    world.ask(Delete("z"), OWNER)
    world.ask(Delete(NODE), OWNER)
    assert boss.go_on("next") == Reply("completed", note="There are no more queues.")


def test_the_counts_of_a_queue_are_shown(world: World, boss: Console) -> None:
    world.publish("i1", by=OWNER)
    boss.execute(Command.QUEUE)
    boss.go_on(node=NODE)
    values = {field.var: field.values for field in boss.form.fields}
    assert (values["node"], values["available"]) == ((NODE,), ("1",))
    assert boss.form.result
    boss.execute(Command.QUEUE)
    assert refusal(boss, node="none") == ("item-not-found", "there is no node 'none'")


def test_items_are_browsed_in_pages(
    world: World, boss: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish(*(f"i{number}" for number in range(5)), by=OWNER)
    monkeypatch.setattr(command_inputs, "ITEMS_PAGE_MAX", 2)
    boss.execute(Command.BROWSE)
    state = boss.form.fields[1]
    assert (state.var, state.values) == ("state", ("live",))
    ids = []
    boss.go_on(node=NODE)
    while boss.reply.status == "executing":
        ids += boss.names
        boss.go_on("next")
    ids += boss.names
    assert ids == [f"i{number}" for number in range(5)]
    assert isinstance(boss.jobs[-1], Items)
    assert boss.jobs[-1].after
    boss.execute(Command.BROWSE)
    kind, text = refusal(boss, node=NODE, state="locked")
    assert (kind, "state must be live or accepted or dead" in text) == (
        "bad-payload",
        True,
    )
    assert (
        boss.go_on(node=NODE, state="accepted").note == "There are no accepted items."
    )


def test_a_page_ends_before_its_ids_are_too_long(
    world: World, boss: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_outcomes, "_PAGE_CHARS_MAX", 5)
    world.publish("long-id", "i2", "i3", by=OWNER)
    boss.execute(Command.BROWSE)
    boss.go_on(node=NODE)
    assert boss.names == ["long-id"]
    assert boss.form.instructions.startswith("There are more items: next shows")
    boss.go_on("next")
    assert [row[0] for row in boss.table.rows] == ["i2", "i3"]
    assert boss.reply.status == "completed"


def test_the_next_page_is_empty_if_its_items_are_gone(
    world: World, boss: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_inputs, "ITEMS_PAGE_MAX", 1)
    world.publish("i1", "i2", by=OWNER)
    boss.execute(Command.BROWSE)
    boss.go_on(node=NODE)
    world.ask(Purge(NODE), OWNER)
    assert boss.go_on("next").note == "There are no more live items."


def test_workers_are_shown_up_to_a_number(
    world: World, boss: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    boss.execute(Command.WORKERS)
    assert boss.go_on(node=NODE).note == "'orders' has no worker."
    assert boss.jobs[-1] == Subscriptions(NODE, owner=True)
    for resource in "123":
        world.subscribe(f"boss@x/{resource}", 2)
    boss.execute(Command.WORKERS)
    boss.go_on(node=NODE)
    assert [row[:2] for row in boss.table.rows] == [
        (f"boss@x/{resource}", "2") for resource in "123"
    ]
    monkeypatch.setattr(command_outcomes, "WORKERS_MAX", 2)
    boss.execute(Command.WORKERS)
    assert boss.go_on(node=NODE).note == "The first 2 of 3 workers."
    assert len(boss.table.rows) == 2


# -- dead items ------------------------------------------------------------


def test_dead_items_are_chosen_and_requeued(world: World, boss: Console) -> None:
    boss.execute(Command.DEAD)
    assert boss.go_on(node=NODE).note == "There are no dead items."
    die(world, "i1", "i2", "i3")
    boss.execute(Command.DEAD)
    boss.go_on(node=NODE)
    items, every = boss.form.fields
    assert [value for value, _ in items.options] == ["i1", "i2", "i3"]
    assert items.options[0][1] == "i1: rejected"
    assert every.values == ("0",)
    kind, text = refusal(boss, every="0")
    assert (kind, text.startswith("no item is chosen")) == ("bad-payload", True)
    assert refusal(boss, every="maybe")[0] == "bad-payload"
    assert refusal(boss, items="i9") == ("item-not-found", "there is no dead item 'i9'")
    boss.go_on(items=("i3", "i1", "i3"))
    assert boss.jobs[-1] == Requeue(NODE, ("i3", "i1"))
    assert boss.reply.note == "Requeued in 'orders': 2."
    assert set(world.live()) == {"i1", "i3"}


def test_more_dead_items_than_a_page_can_be_requeued_at_once(
    world: World, boss: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (command_outcomes, command_inputs):
        monkeypatch.setattr(module, "DEAD_PAGE_MAX", 2)
    monkeypatch.setattr(command_outcomes, "REQUEUED_MAX", 3)
    monkeypatch.setattr("qos.core.queue.requeuing._LOOKED_AT_MAX", 2)
    die(world, *(f"i{number}" for number in range(7)))
    boss.execute(Command.DEAD)
    boss.go_on(node=NODE)
    assert boss.reply.actions == ("complete", "next")
    assert boss.form.instructions.endswith("the next page more.")
    boss.go_on("next")
    assert [value for value, _ in boss.form.fields[0].options] == ["i2", "i3"]
    boss.go_on(every="true")
    # Two requests of two: the first that reaches the limit is the last one.
    assert boss.reply.note == (
        "Requeued in 'orders': 4. There are more: execute the command again."
    )
    assert len(world.dead()) == 3


def test_dead_letters_of_another_queue_are_not_offered(
    world: World, boss: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are requeued where they died."""
    world.create("graves")
    world.ask(Configure(NODE, {"queue#dead_letter_node": "graves"}), OWNER)
    die(world, "i1", "i2")
    note = (
        "Dead letters of other queues are not shown: requeue them where they died, as in "
        "'orders'."
    )
    boss.execute(Command.DEAD)
    assert boss.go_on(node="graves") == Reply("completed", (), None, note)
    boss.execute(Command.DEAD)
    boss.go_on(node=NODE)
    assert [value for value, _ in boss.form.fields[0].options] == ["i1", "i2"]
    monkeypatch.setattr(command_inputs, "DEAD_PAGE_MAX", 1)
    boss.execute(Command.DEAD)
    boss.go_on(node="graves")
    assert boss.form.instructions.endswith(f"the next page more. {note}")
    assert boss.reply.actions == ("complete", "next")


# -- commands that change --------------------------------------------------


def test_a_queue_is_created(world: World) -> None:
    console = Console(world, BEE, creates=True)
    console.execute(Command.CREATE)
    assert console.jobs == []
    fields = {field.var: field for field in console.form.fields}
    assert fields["node"].required
    assert fields["queue#node_type"].kind == "list-single"
    assert fields["queue#lock_timeout"].values == ("60",)
    assert refusal(console, node=NODE)[0] == "conflict"
    console.go_on(node="bees", queue__ttl="")
    assert console.jobs[-1] == Create("bees", {"queue#ttl": ""})
    assert console.reply == Reply("completed", (), None, "Created 'bees'.")


def test_who_may_only_copy_from_a_topic_creates_such_a_queue() -> None:
    world = World(PRIVATE, creators={"boss@x"})
    world.create("news", {"queue#node_type": "topic", "pubsub#access_model": "open"})
    console = Console(world, BEE)
    console.execute(Command.CREATE)
    assert refusal(console, node="bees")[0] == "forbidden"
    console.go_on(node="bees", queue__topic="news")
    assert console.reply.note == "Created 'bees'."


def test_a_queue_is_configured(world: World, boss: Console) -> None:
    boss.execute(Command.CONFIGURE)
    boss.go_on(node=NODE)
    fields = {field.var: field.values for field in boss.form.fields}
    assert fields["queue#backoff"] == ("0",)
    assert "queue#node_type" not in fields, "it cannot be changed"
    assert "node" not in fields
    boss.go_on(queue__ttl="9")
    assert boss.jobs[-1] == Configure(NODE, {"queue#ttl": "9"})
    assert boss.reply.note == "Changed the configuration of 'orders'."


@pytest.mark.parametrize(
    ("command", "request_", "note"),
    [
        (Command.PURGE, Purge(NODE), "Removed all items of 'orders'."),
        (Command.DELETE, Delete(NODE), "Deleted 'orders'."),
    ],
)
def test_what_cannot_be_undone_is_asked_once_more(
    world: World, boss: Console, command: Command, request_: Purge | Delete, note: str
) -> None:
    world.publish("i1", by=OWNER)
    boss.execute(command)
    boss.go_on(node=NODE)
    assert boss.jobs[-2:] == [GetConfigure(NODE), CountNodes((NODE,))]
    assert "1 available, 0 acquired, 0 delayed, 0 dead" in boss.form.instructions
    for values in ({}, {"confirm": ""}, {"confirm": "0"}, {"confirm": "false"}):
        kind, text = refusal(boss, **values)
        assert (kind, text.startswith("nothing was done")) == ("bad-payload", True)
    assert "i1" in world.live()
    boss.go_on(confirm="1")
    assert boss.jobs[-1] == request_
    assert boss.reply == Reply("completed", (), None, note)


@pytest.mark.parametrize("command", [Command.CONFIGURE, Command.PURGE, Command.DELETE])
def test_a_queue_of_another_is_refused_before_anything_is_shown(
    world: World, command: Command
) -> None:
    """Who owns one queue has the command, but not for all queues."""
    world.ask(SetAffiliations(NODE, {"bee@x": Affiliation.MEMBER}), OWNER)
    world.ask(Create("bees"), BEE)
    console = Console(world, BEE)
    console.execute(command)
    assert refusal(console, node=NODE) == ("forbidden", "bee@x does not own 'orders'")
    world.create("hidden", PRIVATE)
    assert refusal(console, node="hidden")[0] == "item-not-found"
    assert console.go_on(node="bees").status == "executing"
