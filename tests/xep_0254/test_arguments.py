"""A wrong value for any argument is refused before anything is sent, and is named."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest
from slixmpp import ClientXMPP

from qos.core.queue.item import Affiliation, ItemOutcome
from qos.errors import InvalidArgument, NoAnswer
from qos.stores import SqliteStore
from qos.stores.queue_store import SqliteQueueStore
from wrong_values import NO_JIDS, NO_SECONDS, accepted, parameters_of
from xep_0254 import XEP_0254, Event, NewItem, QueueService
from xep_0254.channel import Channel

HOOKS = {"plugin_init", "plugin_end", "session_bind", "post_init"}
QUEUE = "queue.localhost"


@pytest.fixture
async def client() -> AsyncIterator[ClientXMPP]:
    """A client without a connection.

    A request that passes the checks raises NoAnswer.
    """
    client = ClientXMPP("bee@localhost/1", "secret")
    client.register_plugin("xep_0254")
    yield client
    client.plugin.disable("xep_0254")  # type: ignore[attr-defined]  # slixmpp's lack


def ignore(_event: Event) -> None:
    """A listener."""


WHERE = {"service": QUEUE, "node": "orders"}
ITEM = {**WHERE, "item_id": "i1"}
NO_NODE = {"service": NO_JIDS, "node": ("", "\x00", "\ud800")}
NO_ITEM = {**NO_NODE, "item_id": ("", "\x00")}
NO_TIME = {"timeout_s": (0, *NO_SECONDS)}
NO_CONFIG: dict[str, tuple[object, ...]] = {
    "config": ({"queue#ttl": 5}, {5: "a"}, {"queue#ttl": "\x00"}, [])
}

Given = Mapping[str, object]
Wrong = Mapping[str, Sequence[object]]


def calls(client: ClientXMPP) -> dict[str, tuple[Given, Wrong]]:
    """For each public method: valid arguments, and wrong ones of the right type."""
    return {
        "of": ({"xmpp": client}, {}),
        "create": (WHERE, {"service": NO_JIDS, **NO_CONFIG}),
        "configure": ({**WHERE, "config": {}}, {**NO_NODE, **NO_CONFIG}),
        "configuration": (WHERE, NO_NODE),
        "delete": (WHERE, NO_NODE),
        "purge": (WHERE, NO_NODE),
        "affiliations": (WHERE, NO_NODE),
        "set_affiliations": (
            {**WHERE, "affiliations": {"a@b": Affiliation.MEMBER}},
            {
                **NO_NODE,
                "affiliations": (
                    *({"a b@c": Affiliation.MEMBER}, {"": Affiliation.MEMBER}),
                    *({"@": Affiliation.MEMBER}, {"@a@b": Affiliation.MEMBER}),
                    {"b": Affiliation.MEMBER, "@b": Affiliation.NONE},
                    *({"a@b": "boss"}, {"a@b": None}, {5: Affiliation.MEMBER}),
                ),
            },
        ),
        "supports_queueing": ({"service": QUEUE}, {"service": NO_JIDS}),
        "nodes": ({"service": QUEUE}, {"service": NO_JIDS}),
        "stats": (WHERE, NO_NODE),
        "node_info": (WHERE, NO_NODE),
        "publish": (
            {**WHERE, "entries": [NewItem("<a xmlns='b'/>")]},
            {
                **NO_NODE,
                "entries": ([], (), NewItem(), ["<a/>"], [None]),
                "attempts": (0, -1),
                "json": ({"a": {1}}, float("nan"), object()),
                "text": (5, b"a", "a\x00"),
            },
        ),
        "items": (
            WHERE,
            {
                **NO_NODE,
                "state": ("", "Live", "locked"),
                "max_items": (-1,),
                "after": ("\x00",),
            },
        ),
        "browse": (WHERE, {**NO_NODE, "state": ("", "Live", "locked")}),
        "requeue_all": (WHERE, NO_NODE),
        "requeue": (WHERE, {**NO_NODE, "item_ids": ("i1", [""], [5], [b"i1"])}),
        "subscribe": (
            {**WHERE, "queue_requests": 1},
            {
                **NO_NODE,
                **NO_TIME,
                "queue_requests": (0, -1),
                "batch": (0, -1),
                "events": ("", "Message", "acknowledge"),
                "selector": ("n >", "1 = 'a'", " "),
                "jid": NO_JIDS,
            },
        ),
        "unsubscribe": (WHERE, {**NO_NODE, **NO_TIME, "jid": NO_JIDS}),
        "retract": (ITEM, {**NO_ITEM, **NO_TIME}),
        "retract_all": (
            {**WHERE, "items": [("i1", "t1")]},
            {
                **NO_NODE,
                **NO_TIME,
                "items": ([], "i1", [("i1",)], [("", "t1")], [5], [("i1", None)]),
            },
        ),
        "unlock": (
            ITEM,
            {**NO_ITEM, **NO_TIME, "outcome": ("accepted", "", ItemOutcome.ACCEPTED)},
        ),
        "extend": (
            {**ITEM, "token": "t1", "seconds": 5},
            {**NO_ITEM, **NO_TIME, "seconds": (0, *NO_SECONDS)},
        ),
        "add_listener": ({**WHERE, "callback": ignore}, {**NO_NODE, "node": ("",)}),
        "remove_listener": ({**WHERE, "callback": ignore}, {**NO_NODE, "node": ("",)}),
        "pause": ({"delay_s": 0}, {"delay_s": NO_SECONDS}),
    }


async def test_every_argument_of_the_plugin_is_checked_and_nothing_is_left(
    client: ClientXMPP, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service would refuse most of them, and misunderstand the rest."""
    queues = XEP_0254.of(client)
    sent: list[str] = []
    monkeypatch.setattr(client, "send_raw", sent.append)
    # As in a session: a request that passes the checks would be sent.
    queues._channel.own = "bee@localhost/1"
    table = calls(client)
    methods = {
        name: getattr(queues, name)
        for name, value in vars(XEP_0254).items()
        if not name.startswith("_") and name not in HOOKS
        if inspect.isfunction(value) or isinstance(value, classmethod)
    }
    with_parameters = {name for name, each in methods.items() if parameters_of(each)}
    assert with_parameters == set(table)
    tasks = asyncio.all_tasks()
    for name, (valid, wrong) in table.items():
        assert await accepted(methods[name], valid, wrong) == [], name
    assert sent == []
    channel: Channel = queues._channel
    assert not channel._pending
    assert not channel._listeners
    assert asyncio.all_tasks() == tasks


async def test_what_is_right_passes_the_checks(client: ClientXMPP) -> None:
    """A check that refuses everything would pass the other test."""
    queues = XEP_0254.of(client)
    words = {"outcome": "rejected", "affiliations": {"a@b": "member"}}
    for name, (valid, _) in calls(client).items():
        arguments = {**valid}
        for key in words.keys() & parameters_of(getattr(queues, name)).keys():
            arguments[key] = words[key]
        if name == "publish":
            arguments["attempts"] = 1
        result = getattr(queues, name)(**arguments)
        with contextlib.suppress(NoAnswer):
            if inspect.isasyncgen(result):
                await anext(result)
            elif inspect.isawaitable(result):
                await result
    queues.remove_listener(QUEUE, "orders", ignore)


async def test_every_field_of_a_new_item_is_checked() -> None:
    """The service would refuse an item with `priority=10`, and nothing would be stored."""
    wrong: Wrong = {
        "item_id": ("",),
        "priority": (-1, 10),
        "ttl": (0, *NO_SECONDS),
        "delay": NO_SECONDS,
        "json": ({"a": {1}}, float("inf"), object()),
        "text": (5, b"a", "a\x00"),
    }
    assert await accepted(NewItem, {}, wrong) == []


@pytest.mark.parametrize("payload", ["<a>", "text", "<a/><b/>", "<a>\x00</a>"])
async def test_a_payload_is_one_xml_element_and_is_not_shown(
    client: ClientXMPP, payload: str
) -> None:
    """Errors are logged."""
    with pytest.raises(
        InvalidArgument, match=r"payload must be one XML .*'i1'"
    ) as raised:
        await XEP_0254.of(client).publish(QUEUE, "orders", [NewItem(payload, "i1")])
    assert payload not in str(raised.value)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("timeout_s", (0, -1, None, "5", float("nan"), float("inf"), True)),
        ("retry_s", (0, -1, None, "5", float("nan"), float("inf"), True)),
        ("stanza_bytes_max", (0, -1, 999, None, "5", 1e6, True)),
        ("timeout", (5,)),
    ],
)
async def test_every_option_of_the_plugin_is_checked(
    option: str, values: Sequence[object]
) -> None:
    """A misspelt option was silently ignored."""
    assert option in XEP_0254.default_config or option == "timeout"
    assert len(XEP_0254.default_config) == 3, "or one is missing here"
    for value in values:
        client = ClientXMPP("bee@localhost/1", "secret")
        with pytest.raises(ValueError, match=option):
            client.register_plugin("xep_0254", {option: value})
        assert XEP_0254.name not in client.plugin


async def test_every_argument_of_a_service_is_checked_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt account among the creators would lock the owner out."""
    client = ClientXMPP("queue@localhost/1", "secret")
    monkeypatch.chdir(tmp_path)
    wrong: Wrong = {
        "store": (
            *("", "memory:", "files:x", "sqlite:", "queue.db"),
            *(5, None, SqliteStore("messages.db"), SqliteQueueStore),
        ),
        "creators": ("boss", "", "domain,anyone", "all", "a@b,", [""], ["a b@c"], [5]),
        "journal": ("",),
        "relays": (None, "yes", 1),
    }
    tasks, plugins = asyncio.all_tasks(), list(client.plugin)
    valid = {"xmpp": client, "store": "sqlite:queue.db"}
    assert await accepted(QueueService, valid, wrong) == []
    assert os.listdir(tmp_path) == []
    assert list(client.plugin) == plugins
    assert asyncio.all_tasks() == tasks
