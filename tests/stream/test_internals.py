"""The parts of slixmpp that are used and not public: each is there, in one module of ours.

A new minor release of slixmpp may change it: `make newest` tries the newest one.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree as ET

import pytest
import slixmpp
from slixmpp import ClientXMPP, ComponentXMPP
from slixmpp.basexmpp import BaseXMPP
from slixmpp.exceptions import IqTimeout
from slixmpp.stanza import StreamFeatures
from slixmpp.util.sasl.mechanisms import SCRAM
from slixmpp.xmlstream.handler import Callback, CoroutineCallback, Waiter
from slixmpp.xmlstream.matcher import MatchXPath, StanzaPath

from qos.stream import internals
from qos.stream.closing import close

SOURCES = Path(__file__).parents[2]
PATH = MatchXPath("{jabber:client}message/{jabber:client}body")


@pytest.fixture(params=["client", "component"])
async def xmpp(request: pytest.FixtureRequest) -> AsyncIterator[BaseXMPP]:
    made: BaseXMPP
    if request.param == "client":
        made = ClientXMPP("lamp@localhost/1", "secret")
    else:
        made = ComponentXMPP("queue.localhost", "secret")  # type: ignore[no-untyped-call]
    yield made
    await close(made)


async def test_the_lists_are_slixmpps_own_and_stay_the_same(xmpp: BaseXMPP) -> None:
    """They are asked for once, and change in place."""
    handlers = internals.handlers(xmpp)
    events = internals.event_handlers(xmpp)
    modes: tuple[Literal["in", "out", "out_sync", "out_sce"], ...]
    modes = ("in", "out", "out_sync", "out_sce")
    filters = [internals.filters(xmpp, mode) for mode in modes]
    xmpp.register_handler(Callback("ours", PATH, print))
    xmpp.add_event_handler("an_event", print)
    for mode in modes:
        xmpp.add_filter(mode, print)
    assert handlers[-1].name == "ours"
    assert events["an_event"] == [(print, False)]
    assert all(each[-1] is print for each in filters)
    assert xmpp.remove_handler("ours")
    xmpp.del_event_handler("an_event", print)
    assert handlers is internals.handlers(xmpp)
    assert events is internals.event_handlers(xmpp)
    assert not events["an_event"]
    assert "ours" not in {each.name for each in handlers}


async def test_a_stanza_is_wanted_if_a_handler_is_for_it(xmpp: BaseXMPP) -> None:
    """Any other request can be refused, and nobody misses it."""
    space = xmpp.default_ns
    request = f"<iq xmlns='{space}' type='get'><x xmlns='y'/></iq>"
    stanza = ET.fromstring(request)  # noqa: S314 - ours
    assert not internals.is_wanted(xmpp, stanza)
    path = MatchXPath(f"{{{space}}}iq/{{y}}x")
    xmpp.register_handler(Callback("ours", path, print))
    assert internals.is_wanted(xmpp, stanza)


async def test_a_handler_has_a_matcher_with_criteria_and_calls_a_function(
    xmpp: BaseXMPP,
) -> None:
    async def later(stanza: object) -> None: ...

    for handler, function in (
        (Callback("now", PATH, print), print),
        (CoroutineCallback("later", PATH, later), later),
        (Waiter("waiter", PATH, xmpp), None),
    ):
        assert internals.matcher_of(handler) is PATH
        assert internals.function_of(handler) is function
    assert internals.criteria(PATH) == "{jabber:client}message/{jabber:client}body"
    assert internals.criteria(StanzaPath("message/body")) == ["message", "body"]


async def test_who_wakes_an_application_and_the_wrappers_have_these_names(
    xmpp: BaseXMPP,
) -> None:
    """Of functions that slixmpp makes in a function of its own."""
    names: list[str] = []

    async def later(data: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        names.append(getattr(task.get_coro(), "__qualname__", ""))

    waiting = asyncio.create_task(xmpp.wait_until("an_event"))
    await asyncio.sleep(0)
    ((wakes, _),) = internals.event_handlers(xmpp)["an_event"]
    assert wakes.__qualname__ == internals.WAIT_UNTIL
    xmpp.add_event_handler("an_event", later)
    xmpp.event("an_event", "data")
    assert await waiting == "data"
    handler = CoroutineCallback("later", PATH, later, stream=xmpp)
    handler.run(xmpp.make_message("x@localhost"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert tuple(names) == internals.WRAPPERS


async def test_connect_and_dispatch_can_be_replaced(xmpp: BaseXMPP) -> None:
    calls: list[object] = []

    async def connect() -> None:
        calls.append("connect")

    internals.replace_connect(xmpp, connect)
    assert internals.sending_task(xmpp) is None
    await xmpp.connect("127.0.0.1", 1)
    task = internals.sending_task(xmpp)
    assert isinstance(task, asyncio.Task)
    assert not task.done()
    before = internals.replace_dispatch(xmpp, calls.append)
    header = (
        f"<stream:stream xmlns='{xmpp.default_ns}' xmlns:stream='{xmpp.stream_ns}'>"
    )
    xmpp.init_parser()
    xmpp.data_received(f"{header}<message/>".encode())
    assert calls[0] == "connect"
    assert [getattr(each, "tag", each) for each in calls[1:]] == [
        f"{{{xmpp.default_ns}}}message"
    ]
    assert callable(before)
    assert not internals.is_started(xmpp)
    xmpp.event("session_start")
    assert internals.is_started(xmpp)


async def test_features_are_negotiated_and_capabilities_added_by_these() -> None:
    client = ClientXMPP("lamp@localhost/1", "secret")
    try:
        client.register_plugin("xep_0115")
        caps = internals.caps_filter(client.plugin["xep_0115"])
        assert caps in internals.filters(client, "out")
        await internals.negotiate(client, StreamFeatures())
    finally:
        await close(client)


@pytest.mark.parametrize(
    ("name", "salt", "ours", "theirs", "expected"),
    [
        (
            "SCRAM-SHA-1",
            "QSXCR+Q6sek8bf92",
            "fyko+d2lbbFgONRv9qkxdawL",
            "3rfcNHYJY1ZVvWVs7j",
            "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        ),
        (
            "SCRAM-SHA-256",
            "W22ZaJ0SNY7soEsUEjb6gQ==",
            "rOprNGfwEbeRWgbNEkqO",
            "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
            "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        ),
    ],
)
def test_a_quick_scram_gives_the_proofs_of_the_texts(
    name: str, salt: str, ours: str, theirs: str, expected: str
) -> None:
    """RFC 5802 §5 and RFC 7677 §3: of user `user` with the password `pencil`."""
    internals.quicken_scram()
    scram: Any = SCRAM(  # type: ignore[no-untyped-call]
        name,
        {"username": b"user", "password": b"pencil"},
        {"encrypted": True, "tls_version": None, "binding_proposed": False},
    )
    salted = scram.Hi(b"pencil", base64.b64decode(salt), 4096)
    client_key = scram.HMAC(salted, b"Client Key")
    nonce = f"r={ours}{theirs}"
    message = f"n=user,r={ours},{nonce},s={salt},i=4096,c=biws,{nonce}"
    signature = scram.HMAC(scram.H(client_key), message.encode())
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    assert base64.b64encode(proof).decode() == expected


def test_only_this_module_uses_what_is_not_public() -> None:
    """Names with an underscore, of whatever belongs to slixmpp."""
    used = re.compile(
        r"_XMLStream__|\b(?:xmpp|client|stream|matcher|handler|disco|caps)\._[a-z]"
    )
    found = [
        f"{path.relative_to(SOURCES)}:{number}: {line.strip()}"
        for folder in ("qos", "plugins")
        for path in (SOURCES / folder).rglob("*.py")
        if path.name != "internals.py"
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if used.search(line)
    ]
    assert found == []


def test_the_pin_is_a_minor_release() -> None:
    pin = re.search(
        r'"slixmpp~=(\d+\.\d+)\.0"', (SOURCES / "pyproject.toml").read_text()
    )
    assert pin
    assert slixmpp.__version__.startswith(f"{pin[1]}.")


async def test_a_request_can_time_out_at_once(xmpp: BaseXMPP) -> None:
    """By its timer, of which slixmpp and asyncio keep the function."""
    request = xmpp.make_iq_get(ito="bob@localhost/1")
    answer = request.send(timeout=1000)  # type: ignore[no-untyped-call]
    ((name, timer),) = xmpp.scheduled_events.items()
    assert name.startswith("IqTimeout_")
    internals.end_request(timer)
    assert isinstance(answer.exception(), IqTimeout)
    assert timer.cancelled()
    internals.end_request(timer)
