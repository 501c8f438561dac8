"""A wrong value for any argument is refused at once, by a ValueError that names it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import pytest
from slixmpp import ClientXMPP
from slixmpp.xmlstream.matcher import StanzaPath

from qos.core.message.model import Level
from qos.errors import InvalidArgument, UnknownMessage
from qos.stores import MemoryStore
from qos.stores.base import Change
from qos.testing import friends, logged_in
from test_raw_peers import QOS
from wrong_values import NO_JIDS, NO_SECONDS, accepted, parameters_of
from xep_qos import XEP_QOS, Settings

#: Methods that only slixmpp calls.
HOOKS = {"plugin_init", "plugin_end", "session_bind", "post_init"}

NO_MSG_IDS = ("", "x" * 1025, "\ud800", "\x00")
NO_LEVELS = ("", "Assured", "ASSURED", "asured", "exactly once")


class WrittenStore(MemoryStore):
    """Counts the messages that are written into it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def write(self, changes: Sequence[Change]) -> Any:
        """See Store."""
        self.written += len(changes)
        return super().write(changes)


async def never(*_: object) -> None:
    """A consumer."""


@pytest.fixture
async def client() -> AsyncIterator[ClientXMPP]:
    """A client without a connection, so that consumers can be registered."""
    client = ClientXMPP("bob@localhost/b", "secret")
    client.register_plugin("xep_qos", {"store": WrittenStore()})
    yield client
    await XEP_QOS.of(client).aclose()


Calls = dict[str, tuple[Mapping[str, object], Mapping[str, Sequence[object]]]]


def calls(client: ClientXMPP) -> Calls:
    """For each public method: valid arguments, and wrong ones of the right type."""
    message = client.make_message("carol@localhost/c", "on")
    nowhere = client.make_message("")
    sending = {
        "to": (*NO_JIDS, nowhere, message.xml),
        "body": ("\x00",),
        "payload": ("", "<a>", "text"),
        "level": NO_LEVELS,
        "deadline_s": NO_SECONDS,
        "msg_id": NO_MSG_IDS,
    }
    delays: Mapping[str, Sequence[object]] = {
        "name": ("",),
        "max_handovers": (0, -1),
        "retry_first_s": (0, -1, 1000.0),
        "retry_max_s": (0, -1),
    }
    done = asyncio.get_running_loop().create_future()
    return {
        "of": ({"xmpp": client}, {}),
        "send": ({"to": message}, sending),
        "submit": ({"to": message}, sending),
        "confirmed": ({}, {"within_s": NO_SECONDS}),
        "delivery": ({"msg_id": "m1"}, {}),
        "outcome": ({"msg_id": "m1"}, {}),
        "incoming": ({"message": message}, {}),
        "admits": ({"message": message}, {}),
        "admitted": ({"message": message}, {}),
        "take_until": ({"message": message, "done": done}, {}),
        "begin": ({"message": message}, {"max_redeliveries": (0, -1)}),
        "consumer": ({}, delays),
        "parked": ({}, {"source": NO_JIDS}),
        "release_parked": ({"msg_id": "m1"}, {"source": NO_JIDS}),
        "drop_parked": ({"msg_id": "m1"}, {"source": NO_JIDS}),
    }


async def test_every_argument_of_the_plugin_is_checked_and_nothing_is_left(
    client: ClientXMPP,
) -> None:
    """`level="asured"` was stored, and handed over again and again without end."""
    qos = XEP_QOS.of(client)
    store = qos.store
    assert isinstance(store, WrittenStore)
    table = calls(client)
    methods = {
        name: getattr(qos, name)
        for name, value in vars(XEP_QOS).items()
        if not name.startswith("_") and name not in HOOKS
        if inspect.isfunction(value) or isinstance(value, classmethod)
    }
    with_parameters = {name for name, each in methods.items() if parameters_of(each)}
    assert with_parameters == set(table)
    tasks = asyncio.all_tasks()
    for name, (valid, wrong) in table.items():
        assert await accepted(methods[name], valid, wrong) == [], name
    assert store.written == 0
    assert not list(store.outgoing())
    assert not qos._endpoint.outbox.outstanding
    assert asyncio.all_tasks() == tasks


async def test_every_option_of_the_plugin_is_checked() -> None:
    """A wrong option must be found when the plugin is registered, not at the first
    message.
    """
    wrong: dict[str, Sequence[object]] = {
        name: NO_SECONDS for name in parameters_of(Settings) if name.endswith("_s")
    }
    wrong["trust"] = ("", ",", "rooster", ["nobody"], "all")
    wrong["accepts"] = ("", "all", None, ["trusted"], lambda _: True)
    wrong |= {
        name: (-1,) for name in parameters_of(Settings) if name.startswith("quota_")
    }
    wrong |= {
        name: (-1, 0)
        for name in parameters_of(Settings)
        if name.endswith("_max") and name != "outcomes_max"
    }
    wrong |= {
        "outcomes_max": (-1,),
        "store": ("", "memory", "sqlite:", "files:", "bogus:x", MemoryStore),
        "namespaces": ([], (), [QOS, "urn:xmpp:qos:99"], [None], {QOS}, QOS),
        "event_log_to": NO_JIDS,
        "journal": ("",),
        "batch_max": (0, 257),
    }
    assert await accepted(Settings, {}, wrong) == []


async def test_a_consumer_has_to_be_a_function(client: ClientXMPP) -> None:
    """Otherwise each hand-over would fail, and each message would be parked."""
    register: Callable[[Any], object] = XEP_QOS.of(client).consumer(name="readings")
    for handler in (None, "never", 5, never()):
        with pytest.raises(InvalidArgument, match="handler must be a function"):
            register(handler)
        if inspect.iscoroutine(handler):
            handler.close()
    path = StanzaPath("message/body")
    assert XEP_QOS.of(client).consumer(match=path, name="readings")(never) is never


async def test_the_word_of_a_level_is_as_good_as_the_level() -> None:
    """The command has the words, so users of the library write them too."""
    async with (
        friends("alice", "bob") as server,
        logged_in(server, "bob/1") as bob,
        logged_in(server, "alice/1") as alice,
    ):
        bob.add_event_handler("message", lambda _message: None)
        for level in Level:
            qos = XEP_QOS.of(alice)
            outcome = await qos.send("bob@localhost/1", "on", level=level.value)
            assert outcome.level is level
            message = alice.make_message("bob@localhost/1", "on")
            delivery = await qos.submit(message, level=level.value)
            assert (await delivery.outcome()).level is level


async def test_an_error_shows_neither_body_nor_payload(client: ClientXMPP) -> None:
    """Errors are logged, and messages are private."""
    qos = XEP_QOS.of(client)
    with pytest.raises(InvalidArgument, match="body") as raised:
        await qos.send("carol@localhost/c", b"hush")  # type: ignore[arg-type]  # tested
    assert "hush" not in str(raised.value)
    with pytest.raises(InvalidArgument, match="payload") as raised:
        await qos.send("carol@localhost/c", payload=b"<hush/>")  # type: ignore[arg-type]
    assert "hush" not in str(raised.value)


async def test_a_body_beside_a_payload_is_refused(client: ClientXMPP) -> None:
    """One of them would be left out without notice."""
    with pytest.raises(InvalidArgument, match="body"):
        await XEP_QOS.of(client).send("carol@localhost", "on", payload="<a xmlns='b'/>")


async def test_an_id_of_no_message_is_unknown(client: ClientXMPP) -> None:
    """An unknown id is not a wrong argument."""
    with pytest.raises(UnknownMessage):
        XEP_QOS.of(client).delivery("")


#: As documented, and not read from the code: the smallest value of each number.
LEAST = {
    "quota_messages": 0,
    "quota_bytes": 0,
    "quota_total_messages": 0,
    "quota_total_bytes": 0,
    "quota_domain_messages": 0,
    "quota_domain_bytes": 0,
    "outcomes_max": 0,
    "tombstones_max": 1,
    "window_max": 1,
    "outbox_messages_max": 1,
    "outbox_bytes_max": 1,
    "batch_max": 1,
    "stanza_bytes_max": 1_000,
}


@pytest.mark.parametrize(("name", "least"), LEAST.items())
async def test_the_least_of_a_number_is_taken_and_less_is_not(
    name: str, least: int
) -> None:
    """A quota of 0 holds nothing: that is a setting, and not a mistake."""
    values: dict[str, Any] = {name: least}
    assert getattr(Settings.from_config(values), name) == least
    with pytest.raises(InvalidArgument, match=rf"{name} must be a whole number"):
        Settings.from_config({name: least - 1})
    numbers = {name for name in parameters_of(Settings) if _is_whole(name)}
    assert numbers == set(LEAST)


def _is_whole(name: str) -> bool:
    return str(parameters_of(Settings)[name].annotation) == "int"
