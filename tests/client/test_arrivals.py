"""Whose messages reach an application of `qos.connect`: those of whom it trusts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from slixmpp import JID

import qos
from qos import Device, NotDelivered
from qos.testing import LoopbackServer
from waiting import limit, until

SECRET = "secret"  # noqa: S105 - of accounts that only exist in a test
LAMP, MALLORY = "lamp@localhost/1", "mallory@localhost/1"


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    """The controller is a contact of the lamp, mallory is not."""
    accounts = dict.fromkeys(("lamp", "controller", "mallory"), SECRET)
    rosters = {
        "lamp": {"controller@localhost": "both"},
        "controller": {"lamp@localhost": "both"},
    }
    async with LoopbackServer(accounts=accounts, rosters=rosters) as server:
        yield server


def device(server: LoopbackServer, jid: str, **options: Any) -> Device:
    return qos.connect(
        jid,
        SECRET,
        host=server.host,
        port=server.port,
        tls="off",
        store="memory:",
        retry_first_s=0.1,
        retry_max_s=0.3,
        **options,
    )


async def bodies(lamp: Device, count: int) -> list[str]:
    messages = lamp.messages()
    found = [(await anext(messages))["body"] for _ in range(count)]
    await messages.aclose()
    return found


def say(device: Device, body: str) -> None:
    """Send a plain message to the lamp."""
    device.client.send_message(JID(LAMP), body)


async def test_a_stranger_reaches_the_application_at_no_level(
    server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Trust bounded only what was kept: anybody could switch the lamp of the guide."""
    async with (
        device(server, LAMP) as lamp,
        device(server, MALLORY) as mallory,
        device(server, "controller@localhost/1") as controller,
        limit(),
    ):
        say(mallory, "plain")
        for level in ("acknowledged", "assured"):
            with pytest.raises(NotDelivered, match="not-allowed"):
                await mallory.send(LAMP, level, level=level)
        say(controller, "plain of a contact")
        assert await bodies(lamp, 1) == ["plain of a contact"]
    assert f"{MALLORY}: a plain message was dropped" in caplog.text


async def test_an_application_may_accept_anyone_but_holds_nothing_for_him(
    server: LoopbackServer,
) -> None:
    async with (
        device(server, LAMP, accepts="anyone") as lamp,
        device(server, MALLORY) as mallory,
        limit(),
    ):
        say(mallory, "plain")
        sending = asyncio.create_task(
            mallory.send(LAMP, "acknowledged", level="acknowledged")
        )
        assert sorted(await bodies(lamp, 2)) == ["acknowledged", "plain"]
        await sending
        with pytest.raises(NotDelivered, match="not-allowed"):
            await mallory.send(LAMP, "assured")


@pytest.mark.parametrize(
    "trust", [["contacts", "@localhost"], "mallory@localhost", "anyone"]
)
async def test_whoever_is_named_reaches_it_at_every_level(
    server: LoopbackServer, trust: Any
) -> None:
    async with (
        device(server, LAMP, trust=trust) as lamp,
        device(server, MALLORY) as mallory,
        limit(),
    ):
        say(mallory, "plain")
        sends = [
            asyncio.create_task(
                mallory.send(LAMP, "acknowledged", level="acknowledged")
            ),
            asyncio.create_task(mallory.send(LAMP, "assured")),
        ]
        found = await bodies(lamp, 3)
        assert sorted(found) == ["acknowledged", "assured", "plain"]
        await asyncio.gather(*sends)


async def test_the_own_account_is_trusted_in_any_case(server: LoopbackServer) -> None:
    async with (
        device(server, LAMP, trust="nobody") as lamp,
        device(server, "lamp@localhost/2", receives=False) as other,
        limit(),
    ):
        say(other, "plain")
        assert await bodies(lamp, 1) == ["plain"]


async def test_plain_messages_wait_for_the_roster(server: LoopbackServer) -> None:
    """Before it is known nobody can be refused, nor accepted."""
    async with (
        device(server, LAMP) as lamp,
        device(server, MALLORY) as mallory,
        device(server, "controller@localhost/1") as controller,
        limit(),
    ):
        roster_known = lamp.qos._endpoint.guard.roster_known
        roster_known.clear()
        say(mallory, "of a stranger")
        say(controller, "of a contact")
        taking = asyncio.create_task(bodies(lamp, 1))
        await asyncio.sleep(1.0)  # by the clock of the loop: nothing is left to do
        assert not taking.done()
        roster_known.set()
        assert await taking == ["of a contact"]


@pytest.mark.parametrize("bound", ["MAX", "BYTES_MAX"])
async def test_what_waits_for_a_decision_is_bounded_and_in_its_order(
    server: LoopbackServer,
    bound: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A function that never answers must not keep all that comes meanwhile."""
    monkeypatch.setattr(
        f"qos.client.trust_gate.UNDECIDED_{bound}", {"MAX": 2}.get(bound, 500)
    )
    decide = asyncio.Event()

    async def trust(jid: str) -> bool:
        await decide.wait()
        return jid.startswith("mallory")

    async with (
        device(server, LAMP, trust=trust) as lamp,
        device(server, MALLORY) as mallory,
        limit(),
    ):
        for number in range(9):
            say(mallory, f"{number}")
        await until(lambda: "more are dropped" in caplog.text)
        await asyncio.sleep(1.0)  # by the clock of the loop: nothing is left to do
        decide.set()
        assert await bodies(lamp, 2) == ["0", "1"]
        say(mallory, "later")
        assert await bodies(lamp, 1) == ["later"]
    assert caplog.text.count("more are dropped") == 1


async def test_a_device_that_is_closed_decides_on_nothing_more(
    server: LoopbackServer,
) -> None:
    async def trust(_: str) -> bool:
        await asyncio.Event().wait()
        return True

    tasks = asyncio.all_tasks()
    async with (
        device(server, LAMP, trust=trust) as lamp,
        device(server, MALLORY) as mallory,
        limit(),
    ):
        say(mallory, "on")
        connection = lamp._connection
        assert connection is not None
        await until(lambda: connection.gate._undecided)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == tasks


@pytest.mark.parametrize("inside", [False, True])
async def test_a_handler_of_slixmpp_is_as_safe_as_a_loop(
    server: LoopbackServer, inside: bool
) -> None:
    """Anybody could switch the lamp of a program with handlers of its own.

    Registered by `setup`, or within the block; in this order nothing is overtaken.
    """
    heard: list[str] = []

    def register(lamp: Device) -> None:
        lamp.client.add_event_handler("message", lambda it: heard.append(it["body"]))

    options: dict[str, Any] = {} if inside else {"setup": register}
    async with (
        device(server, LAMP, **options) as lamp,
        device(server, MALLORY) as mallory,
        device(server, "controller@localhost/1") as controller,
        limit(),
    ):
        if inside:
            register(lamp)
        roster_known = lamp.qos._endpoint.guard.roster_known
        roster_known.clear()
        say(controller, "waits for the roster")
        say(mallory, "of a stranger")
        await asyncio.sleep(1.0)  # by the clock of the loop: nothing is left to do
        assert heard == []
        roster_known.set()
        say(mallory, "again")
        say(controller, "comes at once")
        await until(lambda: len(heard) == 2)
    assert heard == ["waits for the roster", "comes at once"]


async def test_a_handler_of_slixmpp_may_hear_anyone_if_the_program_says_so(
    server: LoopbackServer,
) -> None:
    heard: list[str] = []

    def register(lamp: Device) -> None:
        lamp.client.add_event_handler("message", lambda it: heard.append(it["body"]))

    async with (
        device(server, LAMP, setup=register, accepts="anyone"),
        device(server, MALLORY) as mallory,
        limit(),
    ):
        say(mallory, "of a stranger")
        await until(lambda: heard == ["of a stranger"])


async def test_what_came_back_switches_nothing(server: LoopbackServer) -> None:
    """A stranger needed only the type error: slixmpp raises `message` for it too."""
    heard: list[str] = []

    def register(lamp: Device) -> None:
        lamp.client.add_event_handler("message", lambda it: heard.append(it["body"]))

    async with (
        device(server, LAMP, setup=register) as lamp,
        device(server, MALLORY) as mallory,
        device(server, "controller@localhost/1") as controller,
        limit(),
    ):
        for sender in (mallory, controller):
            returned = asyncio.ensure_future(lamp.client.wait_until("message_error"))
            error = sender.client.make_message(JID(LAMP), "on", mtype="error")
            error["error"]["condition"] = "service-unavailable"
            error.send()
            message = await returned
            assert message["error"]["condition"] == "service-unavailable"
            assert message["body"] == ""
        say(controller, "off")
        await until(lambda: heard == ["off"])
