"""`qos.connect`.

It stays connected, reports why it cannot connect, and closes at the end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import ssl
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from slixmpp import JID

import qos
from proxy import LinkFault, Proxy
from qos import CannotConnect, Device, LocalProtocolError
from qos.cli import inbox, store_records
from qos.testing import LoopbackServer, friends
from qos.testing.processes import Child
from qos.testing.prosody import Prosody, mutual
from waiting import LIMIT_S, limit, until

SECRET = "secret"  # noqa: S105 - of accounts that only exist in a test
LAMP, CONTROLLER = "lamp@localhost/1", "controller@localhost/1"
QUICK: dict[str, Any] = {
    "store": "memory:",
    "retry_first_s": 0.1,
    "retry_max_s": 0.3,
}


@pytest.fixture
async def server() -> AsyncIterator[LoopbackServer]:
    async with friends("controller", "lamp") as server:
        yield server


def device(
    server: LoopbackServer, jid: str, password: str = SECRET, **options: Any
) -> Device:
    where: Mapping[str, Any] = {"host": server.host, "port": server.port, "tls": "off"}
    return qos.connect(jid, password, **(QUICK | {**where, **options}))


async def test_a_command_is_sent_taken_and_confirmed(server: LoopbackServer) -> None:
    """To a bare JID: the controller finds the resource by its presence."""
    async with (
        device(server, LAMP) as lamp,
        device(server, CONTROLLER) as controller,
        limit(),
    ):
        sending = asyncio.create_task(controller.send("lamp@localhost", "on"))
        messages = lamp.messages()
        message = await anext(messages)
        info = lamp.qos.incoming(message)
        assert info is not None
        assert (message["body"], info.level) == ("on", qos.Level.ASSURED)
        assert not info.redelivered
        assert not sending.done()
        await messages.aclose()
        assert (await sending).status.value == "delivered"


async def test_a_device_reads_the_certificates_of_the_system_once(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are hundreds: it takes longer than all else that a command does."""
    reads: list[ssl.SSLContext] = []
    monkeypatch.setattr(
        ssl.SSLContext,
        "load_default_certs",
        lambda context, _purpose: reads.append(context),
    )
    async with device(server, LAMP):
        assert len(reads) == 1


async def test_break_takes_the_message_when_the_block_is_left(
    server: LoopbackServer,
) -> None:
    """The sender gets its confirmation before the device logs out."""
    async with device(server, CONTROLLER) as controller, limit():
        async with device(server, LAMP) as lamp:
            sending = asyncio.create_task(controller.send("lamp@localhost", "off"))
            async for message in lamp.messages():
                assert message["body"] == "off"
                break
        assert (await sending).status.value == "delivered"


# -- what cannot be ----------------------------------------------------------


async def test_a_wrong_password_is_told_after_one_attempt(
    server: LoopbackServer,
) -> None:
    """Several devices with an old password would flood a server with logins."""
    logins = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal logins
        logins += 1
        up, down = await asyncio.open_connection(server.host, server.port)

        async def copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
            while data := await source.read(10_000):
                to.write(data)
            to.close()

        await asyncio.gather(copy(reader, down), copy(up, writer))

    between = await asyncio.start_server(count, "127.0.0.1", 0)
    port = between.sockets[0].getsockname()[1]
    with pytest.raises(CannotConnect, match=r"refused the login: not-authorized$"):
        async with device(server, LAMP, "guess", port=port):
            raise AssertionError("it has been entered")
    assert logins == 1
    between.close()


async def test_a_password_that_is_changed_ends_what_waits(
    server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends a loop, a send, and any later call; once, and not silently."""
    async with device(server, LAMP) as lamp, limit():
        sending = asyncio.create_task(lamp.send("controller@localhost/x", "?"))
        looping = asyncio.create_task(anext(lamp.messages()))
        serving = asyncio.create_task(lamp.serve_forever())
        await asyncio.sleep(0)
        passwords = server._router.passwords
        assert isinstance(passwords, dict)
        passwords["lamp"] = "changed"
        await server.restart()
        for task in (sending, looping, serving):
            with pytest.raises(CannotConnect, match="refused the login"):
                await task
        with pytest.raises(CannotConnect, match="refused the login"):
            await lamp.send("controller@localhost", "?")
    assert caplog.text.count("the device has ended") == 1


async def test_a_name_without_an_address_is_told() -> None:
    """Often the name is misspelt."""
    unknown = qos.connect(
        "lamp@localhost",
        "secret",
        host="no-such-host.invalid",
        connect_timeout_s=0.5,
        **QUICK,
    )
    with pytest.raises(CannotConnect, match=r"no-such-host\.invalid:5222.*gave up"):
        await unknown.__aenter__()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"jid": "localhost"}, "jid localhost: an account has the form"),
        ({"tls": "of"}, "tls of: it must be one of starttls, direct, off"),
        ({"tls": "off", "host": "192.0.2.1"}, "tls off is for a loopback address"),
        ({"ca_file": "no.pem"}, "ca_file no.pem: No such file"),
        ({"password": "\x07"}, "the password has characters"),
        ({"deadline": 3}, "no option 'deadline'"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(
    arguments: dict[str, Any], said: str
) -> None:
    """This happens before any file is opened; the text names the argument."""
    with pytest.raises(ValueError, match=said):
        qos.connect(
            **({"jid": LAMP, "password": "secret", "store": "memory:"} | arguments)
        )


def test_there_is_no_default_for_the_store() -> None:
    """The README promised more than the default did: it kept messages in memory."""
    with pytest.raises(ValueError, match="store must be given: 'sqlite:PATH'"):
        qos.connect(LAMP, "secret")  # type: ignore[call-arg]  # what is tested


async def test_a_device_is_entered_once(server: LoopbackServer) -> None:
    """The store of a refused second entry is closed."""
    lamp = device(server, LAMP)
    with pytest.raises(LocalProtocolError, match="not entered"):
        await lamp.send("controller@localhost", "?")
    async with lamp:
        pass
    with pytest.raises(LocalProtocolError, match="entered once"):
        await lamp.__aenter__()


# -- staying connected -------------------------------------------------------


async def test_what_is_outstanding_goes_on_when_the_server_is_back(
    server: LoopbackServer,
) -> None:
    """The server is stopped and started again; neither program does anything for it."""
    async with (
        device(server, LAMP) as lamp,
        device(server, CONTROLLER) as controller,
        limit(),
    ):
        await server.stop()
        await until(lambda: not (lamp.is_online or controller.is_online))
        sending = asyncio.create_task(controller.send("lamp@localhost", "on"))
        await server.start()
        messages = lamp.messages()
        assert (await anext(messages))["body"] == "on"
        await messages.aclose()
        assert (await sending).status.value == "delivered"


@pytest.fixture
async def prosody(tmp_path: Path) -> AsyncIterator[Prosody]:
    folder = tmp_path / "prosody"
    folder.mkdir()
    names = ("controller", "lamp")
    async with Prosody(
        folder,
        accounts=dict.fromkeys(names, "secret"),
        rosters=mutual(names),
        tls=True,
    ) as prosody:
        yield prosody


def secure(prosody: Prosody, jid: str, **options: Any) -> Device:
    where: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": prosody.c2s_port,
        "ca_file": prosody.ca_file,
    }
    return qos.connect(jid, "secret", **(QUICK | where | options))


@pytest.mark.xmpp
@pytest.mark.looptime(False)
@pytest.mark.parametrize("stream_management", [True, False])
async def test_a_frozen_server_is_found_by_the_keepalive(
    stream_management: bool, prosody: Prosody
) -> None:
    """A process that hangs closes no connection, and answers nothing."""
    options = {
        "stream_management": stream_management,
        "ping_interval_s": 0.2,
        "ping_timeout_s": 0.3,
    }
    pid = prosody.pid
    async with (
        secure(prosody, LAMP) as lamp,
        secure(prosody, CONTROLLER, **options) as controller,
        limit(),
    ):
        os.kill(pid, signal.SIGSTOP)
        try:
            await until(lambda: not controller.is_online)
            # The server answers again, but maybe not so soon.
            object.__setattr__(controller._login, "ping_timeout_s", LIMIT_S)
        finally:
            os.kill(pid, signal.SIGCONT)
        sending = asyncio.create_task(controller.send("lamp@localhost", "on"))
        messages = lamp.messages()
        assert (await anext(messages))["body"] == "on"
        await messages.aclose()
        assert (await sending).status.value == "delivered"


@pytest.mark.xmpp
@pytest.mark.looptime(False)
async def test_a_server_that_is_killed_loses_nothing_of_a_device(
    prosody: Prosody,
) -> None:
    """Outstanding messages continue when the server has been started again."""
    async with (
        secure(prosody, LAMP) as lamp,
        secure(prosody, CONTROLLER) as controller,
        limit(),
    ):
        await prosody.kill()
        sending = [
            asyncio.create_task(controller.send("lamp@localhost", str(number)))
            for number in range(20)
        ]
        await prosody.start()
        messages = lamp.messages()
        bodies = {(await anext(messages))["body"] for _ in sending}
        await messages.aclose()
        assert bodies == set(map(str, range(20)))
        for each in sending:
            assert (await each).status.value == "delivered"


@pytest.mark.xmpp
@pytest.mark.looptime(False)
async def test_a_session_is_resumed_after_a_cut(prosody: Prosody) -> None:
    """XEP-0198: a plain message in flight arrives, once."""
    async with (
        Proxy(prosody.c2s_port, seed=1) as proxy,
        secure(prosody, LAMP, port=proxy.port) as lamp,
        secure(prosody, CONTROLLER) as controller,
        limit(),
    ):
        resumed = asyncio.ensure_future(
            lamp.client.wait_until("session_resumed", LIMIT_S)
        )
        await proxy.inflict(LinkFault.CUT, 0)
        controller.client.send_message(JID(LAMP), "while it was away")
        await resumed
        assert (await anext(lamp.messages()))["body"] == "while it was away"


@pytest.mark.xmpp
@pytest.mark.looptime(False)
async def test_a_certificate_of_another_ca_is_told_and_ca_file_named(
    prosody: Prosody,
) -> None:
    """This is the first problem of a newcomer with a server of his own."""
    with pytest.raises(CannotConnect, match=r"certificate is refused: self.*ca_file"):
        await secure(prosody, LAMP, ca_file=None).__aenter__()


# -- the end -----------------------------------------------------------------


async def test_a_device_can_be_cancelled_whatever_it_waits_for(
    server: LoopbackServer, tmp_path: Path
) -> None:
    """Its store is closed then: the next device can open it."""
    store = f"sqlite:{tmp_path / 'lamp.db'}"
    reached = ""

    async def live() -> None:
        nonlocal reached
        reached = "entering"
        async with device(server, LAMP, store=store) as lamp:
            reached = "sending"
            with pytest.raises(qos.NotDelivered):
                await lamp.send("controller@localhost/away", "?", deadline_s=0.02)
            reached = "looping"
            async for _ in lamp.messages():
                raise AssertionError

    seen = set()
    for turns in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610):
        task = asyncio.create_task(live())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        seen.add(reached)
        with pytest.raises(asyncio.CancelledError):
            await task
    assert "entering" in seen
    async with device(server, LAMP, store=store) as lamp:
        looping = asyncio.create_task(anext(lamp.messages()))
        await asyncio.sleep(0)
        looping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looping


async def test_closing_twice_is_no_harm_and_ends_the_loops(
    server: LoopbackServer,
) -> None:
    """A loop that waits for a message ends, since none will come any more."""
    async with device(server, LAMP) as lamp, limit():
        waiting = asyncio.create_task(anext(lamp.messages(), None))
        serving = asyncio.create_task(lamp.serve_forever())
        await asyncio.sleep(0)
        await asyncio.gather(lamp.aclose(), lamp.aclose())
        await lamp.aclose()
        assert await waiting is None
        with pytest.raises(CannotConnect, match="has been closed"):
            await serving
        with pytest.raises(CannotConnect, match="has been closed"):
            await lamp.send("controller@localhost", "?")


# -- the loop ----------------------------------------------------------------


async def test_an_exception_in_the_body_brings_the_message_again(
    server: LoopbackServer, tmp_path: Path
) -> None:
    """Marked as redelivered, after the next start.

    Messages done before do not come again.
    """
    store = f"sqlite:{tmp_path / 'lamp.db'}"

    async def crash() -> None:
        async with device(server, LAMP, store=store) as lamp:
            async for message in lamp.messages():
                if message["body"] == "bad":
                    raise ZeroDivisionError

    async with device(server, CONTROLLER) as controller, limit():
        crashing = asyncio.create_task(crash())
        assert (await controller.send(LAMP, "good")).status.value == "delivered"
        sending = asyncio.create_task(controller.send(LAMP, "bad"))
        with pytest.raises(ZeroDivisionError):
            await crashing
        assert not sending.done()
        async with device(server, LAMP, store=store) as lamp:
            messages = lamp.messages()
            message = await anext(messages)
            info = lamp.qos.incoming(message)
            assert message["body"] == "bad"
            assert info is not None
            assert info.redelivered
            await messages.aclose()
            assert (await sending).status.value == "delivered"


@pytest.mark.parametrize("level", [qos.Level.ASSURED, qos.Level.ACKNOWLEDGED])
async def test_a_message_that_ends_each_run_can_be_dropped_by_force(
    level: qos.Level, server: LoopbackServer, tmp_path: Path
) -> None:
    """Without that it would come first at each start, for ever."""
    store = f"sqlite:{tmp_path / 'lamp.db'}"

    async def crash() -> None:
        async with device(server, LAMP, store=store) as lamp:
            async for message in lamp.messages():
                raise ZeroDivisionError(message["body"])

    async with device(server, CONTROLLER) as controller, limit():
        sending = asyncio.create_task(
            controller.send(LAMP, "bad", level=level, msg_id="bad")
        )
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match="bad"):
                await crash()
        async with store_records.opened(store, to_read=True) as closed:
            (record,) = closed.incoming()
        words = ["drop", record.msg_id, "--force", "--store", store]
        assert await inbox.run(inbox.parser("inbox").parse_args(words)) == 0
        async with device(server, LAMP, store=store) as lamp:
            messages = lamp.messages()
            later = asyncio.create_task(controller.send(LAMP, "later"))
            assert (await anext(messages))["body"] == "later"
            await messages.aclose()
            assert (await later).status.value == "delivered"
            with pytest.raises(qos.InDoubt):
                await sending


@pytest.mark.parametrize("level", [qos.Level.ASSURED, qos.Level.ACKNOWLEDGED])
@pytest.mark.parametrize("most", [1, 3])
async def test_a_message_that_ends_each_run_is_parked_and_the_loop_goes_on(
    most: int,
    level: qos.Level,
    server: LoopbackServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It came first at each start, for ever. Those behind it do not count as failed."""
    store = f"sqlite:{tmp_path / 'lamp.db'}"
    came = asyncio.Event()

    async def run() -> str:
        async with device(server, LAMP, store=store) as lamp:
            async for message in lamp.messages(max_redeliveries=most):
                if message["body"] == "bad":
                    came.set()
                    # The other one waits behind it, and comes again as well.
                    await until(lambda: lamp.qos._endpoint.inbox.used()[0] >= 2)
                    raise ZeroDivisionError
                parked = [each.payload for each in lamp.qos.parked()]
                assert "bad" in "".join(parked)
                return str(message["body"])
        raise AssertionError("the loop has ended")

    often: Mapping[str, Any] = {"retry_first_s": 0.1, "retry_max_s": 0.5}
    async with (
        device(server, CONTROLLER, **often) as controller,
        limit(),
    ):
        bad = asyncio.create_task(controller.send(LAMP, "bad", level=level))
        crashing = asyncio.create_task(run())
        await came.wait()
        later = asyncio.create_task(controller.send(LAMP, "later", level=level))
        for _ in range(1 + most):
            with pytest.raises(ZeroDivisionError):
                await crashing
            crashing = asyncio.create_task(run())
        assert await crashing == "later"
        assert caplog.text.count("was not taken: it is parked") == 1
        assert f"has come again {most} times" in caplog.text
        async with device(server, LAMP, store=store) as lamp:
            messages = lamp.messages()
            (parked,) = lamp.qos.parked()
            lamp.qos.release_parked(parked.msg_id)
            assert (await anext(messages))["body"] == "bad"
            await messages.aclose()
            assert (await bad).status.value == "delivered"
            assert (await later).status.value == "delivered"
            assert not lamp.qos.parked()


async def test_a_loop_that_is_cancelled_while_it_counts_loses_no_message(
    server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may be slow; the next one to ask gets the message."""
    store = f"sqlite:{tmp_path / 'lamp.db'}"
    async with device(server, CONTROLLER) as controller, limit():
        sending = asyncio.create_task(controller.send(LAMP, "on"))

        async def crash() -> None:
            async with device(server, LAMP, store=store) as lamp:
                async for message in lamp.messages():
                    raise ZeroDivisionError(message["body"])

        with pytest.raises(ZeroDivisionError):
            await crash()
        async with device(server, LAMP, store=store) as lamp:
            messages, begin = lamp.messages(), lamp.qos.begin
            begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            async def slow(*_: object, **__: object) -> bool:
                begun.set_result(None)
                return await asyncio.Event().wait()

            monkeypatch.setattr(lamp.qos, "begin", slow)
            waiting = asyncio.create_task(anext(messages))
            await begun
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            monkeypatch.setattr(lamp.qos, "begin", begin)
            assert (await anext(messages))["body"] == "on"
            await messages.aclose()
            assert (await sending).status.value == "delivered"


@pytest.mark.looptime(False)
async def test_a_kill_in_the_body_brings_the_message_again(
    server: LoopbackServer, tmp_path: Path
) -> None:
    """The process is killed by kill -9 while the body runs."""
    store = f"sqlite:{tmp_path / 'lamp.db'}"
    async with device(server, CONTROLLER) as controller, limit():
        process = await asyncio.create_subprocess_exec(
            *(*Child.mortal(), sys.executable),
            *("-P", "-c", _VICTIM, str(server.port), store),
            stdout=PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        assert (await controller.send(LAMP, "first")).status.value == "delivered"
        sending = asyncio.create_task(controller.send(LAMP, "second"))
        assert await process.stdout.readline() == b"first\n"
        assert await process.stdout.readline() == b"second\n"
        process.kill()
        await process.communicate()
        async with device(server, LAMP, store=store) as lamp:
            messages = lamp.messages()
            message = await anext(messages)
            info = lamp.qos.incoming(message)
            assert message["body"] == "second"
            assert info is not None
            assert info.redelivered
            await messages.aclose()
            assert (await sending).status.value == "delivered"


_VICTIM = """\
import asyncio, sys, qos

async def main():
    async with qos.connect("lamp@localhost/1", "secret", host="127.0.0.1",
                           port=int(sys.argv[1]), tls="off", store=sys.argv[2]) as lamp:
        print("ready", flush=True)
        async for message in lamp.messages():
            print(message["body"], flush=True)
            if message["body"] == "second":
                await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_messages_that_come_before_the_loop_wait_for_it_unconfirmed(
    server: LoopbackServer,
) -> None:
    """Between `async with` and `async for`, a program may do anything."""
    async with (
        device(server, LAMP) as lamp,
        device(server, CONTROLLER) as controller,
        limit(),
    ):
        controller.client.send_message(JID(LAMP), "plain")
        sending = asyncio.create_task(controller.send(LAMP, "assured"))
        await until(lambda: len(reception(lamp)._waiting) >= 2)
        assert not sending.done()
        messages = lamp.messages()
        bodies = [(await anext(messages))["body"] for _ in range(2)]
        assert bodies == ["plain", "assured"]
        await messages.aclose()
        await sending


def reception(device: Device) -> Any:
    return device._reception


async def test_several_loops_share_the_messages_out(server: LoopbackServer) -> None:
    """Thus several bodies can work; each has its own message."""
    async with (
        device(server, LAMP) as lamp,
        device(server, CONTROLLER) as controller,
        limit(),
    ):
        one, two = lamp.messages(), lamp.messages()
        sends = [asyncio.create_task(controller.send(LAMP, body)) for body in "ab"]
        bodies = [message["body"] for message in (await anext(one), await anext(two))]
        assert sorted(bodies) == ["a", "b"]
        await two.aclose()
        done, _ = await asyncio.wait(sends, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        assert await anext(two, None) is None
        await one.aclose()
        await asyncio.gather(*sends)


@pytest.mark.parametrize(("bound", "value"), [("MAX", 2), ("BYTES_MAX", 500)])
async def test_plain_messages_over_the_bound_are_dropped_and_it_is_logged(
    bound: str,
    value: int,
    server: LoopbackServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At level unacknowledged the sender is not told; memory is bounded."""
    monkeypatch.setattr(f"qos.client.messages.PLAIN_{bound}", value)
    async with (
        device(server, LAMP) as lamp,
        device(server, CONTROLLER) as controller,
        limit(),
    ):
        for body in "abcd":
            controller.client.send_message(JID(LAMP), body)
        await until(lambda: "more are dropped" in caplog.text)
        sending = asyncio.create_task(controller.send(LAMP, "assured"))
        messages = lamp.messages()
        bodies = [(await anext(messages))["body"] for _ in range(3)]
        assert bodies == ["a", "b", "assured"]
        await messages.aclose()
        await sending


async def test_a_plain_message_that_is_returned_is_not_handed_over(
    server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    """It has the body of our own command: acting on it would be a mistake.

    It is logged once a minute: a stranger can return what was never sent.
    """
    caplog.set_level("INFO", "qos.client.arrivals")
    async with (
        device(server, LAMP) as lamp,
        device(server, CONTROLLER) as controller,
        limit(),
    ):
        for _ in range(2):
            returned = asyncio.ensure_future(lamp.client.wait_until("message_error"))
            lamp.client.send_message(JID("nobody@localhost"), "on")
            await returned
        lines = [each for each in caplog.messages if "returned a plain" in each]
        assert lines == ["nobody@localhost returned a plain message of ours"]
        controller.client.send_message(JID(LAMP), "off")
        assert (await anext(lamp.messages()))["body"] == "off"


async def test_setup_registers_handlers_and_consumers_before_it_connects(
    server: LoopbackServer,
) -> None:
    """Then messages go to them, and not to a loop."""
    got = asyncio.Event()

    def setup(lamp: Device) -> None:
        @lamp.qos.consumer()
        async def keep(message: object, handover: object) -> None:
            got.set()

    async with (
        device(server, LAMP, setup=setup) as lamp,
        device(server, CONTROLLER) as controller,
        limit(),
    ):
        with pytest.raises(LocalProtocolError, match="setup"):
            lamp.messages()
        await controller.send(LAMP, "on")
        assert got.is_set()


async def test_a_message_that_no_loop_asks_for_is_logged(
    server: LoopbackServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise a program with handlers but without `setup` would wonder why they are
    not called.
    """
    monkeypatch.setattr("qos.client.messages._FORGOTTEN_S", 0.01)
    caplog.set_level(logging.WARNING)
    async with (
        device(server, LAMP),
        device(server, CONTROLLER) as controller,
        limit(),
    ):
        controller.client.send_message(JID(LAMP), "on")
        await until(lambda: "registered by `setup`" in caplog.text)


def test_importing_qos_imports_no_slixmpp() -> None:
    """It is imported when `qos.connect` is asked for."""
    code = "import sys, qos; assert 'slixmpp' not in sys.modules; qos.connect"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        qos.conect  # type: ignore[attr-defined]  # noqa: B018
