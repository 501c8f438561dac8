"""Tests of the servers and clients that the live tests use."""

import asyncio
import contextlib
import gc
import os
import shutil
import ssl
import sys
from pathlib import Path

import pytest
from slixmpp import ClientXMPP, Message

from clients import LoginError, Plugins, Tls, connected_client, connected_component
from qos.testing.prosody import MakeProsody, Prosody, ProsodyError
from raw_client import RawClient, RawComponent, StreamClosed, local, stanza
from waiting import limit, until

VERSION = "<query xmlns='jabber:iq:version'/>"
VERSION_PLUGIN: Plugins = {"xep_0092": {}}


def raw(server: Prosody, name: str) -> RawClient:
    user, _, resource = name.partition("/")
    jid = f"{user}@localhost/{resource}"
    return RawClient(jid, server.accounts[user], port=server.c2s_port)


def raw_component(server: Prosody, secret: str | None = None) -> RawComponent:
    ((jid, right),) = server.components.items()
    return RawComponent(jid, secret or right, port=server.component_port)


async def exchange_iq_and_message(alice: ClientXMPP, bob: ClientXMPP) -> None:
    bodies: asyncio.Queue[str] = asyncio.Queue()

    def put(message: Message) -> None:
        bodies.put_nowait(message["body"])

    bob.add_event_handler("message", put)
    question = alice.make_iq_get("jabber:iq:version", ito=bob.boundjid)
    answer = await question.send()  # type: ignore[no-untyped-call]  # slixmpp's lack
    assert answer["type"] == "result"
    assert answer["from"] == bob.boundjid
    alice.send_message(mto=bob.boundjid, mbody="hello")
    async with limit():
        assert await bodies.get() == "hello"


async def test_two_slixmpp_clients_exchange_an_iq_and_a_message(
    prosody: Prosody,
) -> None:
    async with (
        connected_client(prosody, "alice/a") as alice,
        connected_client(prosody, "bob/b", VERSION_PLUGIN) as bob,
    ):
        await exchange_iq_and_message(alice, bob)


async def test_friends_see_each_other_and_a_stranger_sees_nobody(
    prosody: Prosody,
) -> None:
    async with (
        raw(prosody, "bob/b") as bob,
        raw(prosody, "carol/c") as carol,
        raw(prosody, "mallory/m") as mallory,
        connected_client(prosody, "alice/a") as alice,
    ):
        for client in (bob, carol, mallory):
            await client.send_presence()
        assert alice.client_roster["bob@localhost"]["subscription"] == "both"
        await bob.expect(stanza("presence", from_="alice@localhost/a"))
        await carol.expect(stanza("presence", from_="alice@localhost/a"))
        await mallory.ping()
        assert mallory.received() == []


@pytest.mark.parametrize("nagle", [False, True])
@pytest.mark.parametrize("smacks", [False, True])
async def test_options_are_what_the_server_offers(
    make_prosody: MakeProsody, nagle: bool, smacks: bool
) -> None:
    server = await make_prosody(nagle=nagle, smacks=smacks)
    async with connected_client(server, "alice/a", {"xep_0198": {}}) as alice:
        await alice.get_roster()
        assert ("stream_management" in alice.features) is smacks
    config = (server.folder / "prosody.cfg.lua").read_text()
    assert ("nagle" not in config) is nagle


async def test_raw_clients_exchange_what_they_are_told_to(prosody: Prosody) -> None:
    async with raw(prosody, "alice/a") as alice, raw(prosody, "bob/b") as bob:
        assert (alice.jid, bob.jid) == ("alice@localhost/a", "bob@localhost/b")
        await alice.send(f"<iq to='{bob.jid}' type='get' id='1'>{VERSION}</iq>")
        await alice.send(f"<message to='{bob.jid}'><body>hello</body></message>")
        message = await bob.expect(stanza("message", from_=alice.jid))
        assert message.findtext("{jabber:client}body") == "hello"
        (question,) = bob.received()
        assert [local(child) for child in question] == ["query"]
        await bob.send(f"<iq to='{alice.jid}' type='result' id='1'/>")
        await alice.expect(stanza("iq", id="1", type="result", from_=bob.jid))


async def test_a_raw_client_says_what_it_saw_instead(prosody: Prosody) -> None:
    async with raw(prosody, "alice/a") as alice:
        await alice.send("<message to='alice@localhost/a' id='unexpected'/>")
        await alice.ping()
        with pytest.raises(TimeoutError, match='id="unexpected"'):
            await alice.expect(stanza("iq"), timeout_s=0.05)
        await alice.send("</a>")
        with pytest.raises(StreamClosed, match="not-well-formed"):
            await alice.expect(stanza("iq"))


async def test_a_wrong_password_is_refused(prosody: Prosody) -> None:
    with pytest.raises(PermissionError, match="not-authorized"):
        async with RawClient("alice@localhost", "wrong", port=prosody.c2s_port):
            pass
    prosody.accounts["alice"] = "wrong"
    with pytest.raises(LoginError, match="refused"):
        async with connected_client(prosody, "alice"):
            pass


async def test_components_of_both_kinds_answer_clients(prosody: Prosody) -> None:
    async with raw(prosody, "alice/a") as alice:
        async with raw_component(prosody) as component:
            await alice.send(f"<message to='x@{component.jid}' id='1'/>")
            message = await component.expect(stanza("message", id="1"))
            assert message.tag == "{jabber:component:accept}message"
            assert message.get("from") == alice.jid
        async with connected_component(
            prosody, "comp.localhost", {"xep_0030": {}}
        ) as component:
            await alice.send(
                "<iq to='comp.localhost' type='get' id='2'>"
                "<query xmlns='http://jabber.org/protocol/disco#info'/></iq>"
            )
            await alice.expect(stanza("iq", id="2", type="result"))
    with pytest.raises(StreamClosed, match="not-authorized"):
        async with raw_component(prosody, "wrong"):
            pass


@pytest.mark.parametrize("tls", ["starttls", "direct"])
async def test_tls_logins_check_the_certificate(
    make_prosody: MakeProsody, tls: Tls
) -> None:
    server = await make_prosody(tls=True)
    async with (
        connected_client(server, "alice/a", tls=tls) as alice,
        connected_client(server, "bob/b", VERSION_PLUGIN, tls=tls) as bob,
        raw(server, "carol/c"),
    ):
        assert isinstance(alice.socket, ssl.SSLObject)
        await exchange_iq_and_message(alice, bob)
    server.ca_file = None
    with pytest.raises(LoginError):
        async with connected_client(server, "alice/a", tls=tls):
            pass


async def test_the_certificate_satisfies_the_strictest_checks(
    make_prosody: MakeProsody,
) -> None:
    """Python 3.13 made these flags the default."""
    server = await make_prosody(tls=True)
    context = ssl.create_default_context(cafile=server.ca_file)
    context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    for name in ("localhost", "127.0.0.1"):
        _, writer = await asyncio.open_connection(
            server.address, server.tls_port, ssl=context, server_hostname=name
        )
        writer.close()
        await writer.wait_closed()


async def test_a_restart_keeps_ports_and_data(prosody: Prosody) -> None:
    pid = prosody.pid
    async with raw(prosody, "alice/a") as alice, raw(prosody, "bob/b") as bob:
        await bob.send("<message to='carol@localhost'><body>later</body></message>")
        await bob.ping()
        await prosody.restart()
        for client in (alice, bob):
            with pytest.raises(StreamClosed):
                await client.expect(stanza("iq"))
    assert prosody.pid != pid
    async with raw(prosody, "carol/c") as carol:
        await carol.send_presence()
        await carol.expect(stanza("message", from_="bob@localhost/b"))


async def test_a_killed_server_says_nothing_and_starts_again(prosody: Prosody) -> None:
    pid = prosody.pid
    async with (
        raw(prosody, "alice/a") as alice,
        connected_client(prosody, "bob/b") as bob,
    ):
        await prosody.kill()
        await alice.wait_closed()
        assert alice.received() == []
        assert not bob.is_connected()
        assert not _is_alive(pid)
        await prosody.start()
        async with raw(prosody, "alice/a"), connected_client(prosody, "bob/b"):
            pass


async def test_stopping_does_not_wait_for_a_client_that_is_stuck(
    prosody: Prosody,
) -> None:
    _, writer = await asyncio.open_connection(prosody.address, prosody.c2s_port)
    await prosody.stop()
    await prosody.stop()
    assert not prosody.running
    assert prosody._process is not None
    # It has ended by itself: with a signal it would be the number of that.
    assert prosody._process.status == 0
    writer.transport.abort()
    with contextlib.suppress(ConnectionResetError):
        await writer.wait_closed()


async def test_a_stanza_over_the_limit_ends_the_stream(
    make_prosody: MakeProsody,
) -> None:
    server = await make_prosody(stanza_bytes_max=20_000)
    for connect in (raw_component(server), raw(server, "alice/a")):
        async with connect as stream:
            # Prosody reads 8 KiB at a time, and checks the size of a stanza only until
            # it is complete. One that is just over the limit may pass.
            for length in (19_000, 50_000):
                await stream.send(
                    f"<iq from='{stream.jid}' to='localhost' type='get' id='{length}'>"
                    f"<ping xmlns='urn:xmpp:ping'>{'x' * length}</ping></iq>"
                )
            await stream.expect(stanza("iq", id="19000", type="result"))
            with pytest.raises(StreamClosed):
                await stream.expect(stanza("iq", id="50000"))


async def test_an_extra_component_can_be_configured(make_prosody: MakeProsody) -> None:
    server = await make_prosody(extra='Component "muc.localhost" "muc"')
    async with raw(server, "alice/a") as alice:
        await alice.send(
            "<presence to='room@muc.localhost/nick'>"
            "<x xmlns='http://jabber.org/protocol/muc'/></presence>"
        )
        await alice.expect(stanza("presence", from_="room@muc.localhost/nick"))


async def test_a_server_that_cannot_start_shows_its_log(
    make_prosody: MakeProsody,
) -> None:
    with pytest.raises(ProsodyError, match="syntax error near 'is'"):
        await make_prosody(extra="this is no Lua")


async def test_a_port_that_is_taken_is_noticed(
    prosody: Prosody, tmp_path: Path
) -> None:
    """Otherwise a test would talk to the server of another test."""
    second = Prosody(tmp_path, accounts=prosody.accounts)
    second.c2s_port = prosody.c2s_port
    with pytest.raises(ProsodyError, match="ports"):
        await second.start()
    assert not second.running
    assert prosody.running


async def test_a_server_does_not_outlive_a_killed_test_run(tmp_path: Path) -> None:
    program = (
        "import asyncio, pathlib\n"
        "from qos.testing.prosody import Prosody\n"
        "async def main():\n"
        f"    server = Prosody(pathlib.Path({str(tmp_path)!r}), accounts={{}})\n"
        "    await server.start()\n"
        "    print(server.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", program),
        cwd=Path(__file__).parent,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert run.stdout is not None
        pid = int(await run.stdout.readline())
    finally:
        run.kill()
        await run.wait()
    await until(lambda: not _is_alive(pid))


async def test_a_missing_prosody_is_a_failure_with_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("prosody") is None
    with pytest.raises(ProsodyError, match=r"^prosody is not installed .*\.?$"):
        await Prosody(tmp_path, accounts={}).start()


async def test_nothing_is_left_when_clients_are_closed(prosody: Prosody) -> None:
    gc.collect()  # Objects of other tests must not be collected later.
    before = asyncio.all_tasks()
    descriptors = os.listdir("/proc/self/fd")
    for _ in range(3):
        async with (
            connected_client(prosody, "alice/a", {"xep_0198": {}, "xep_0115": {}}),
            connected_component(prosody, "comp.localhost"),
            raw(prosody, "bob/b"),
        ):
            pass
    gc.collect()
    await until(lambda: asyncio.all_tasks() == before)
    await until(lambda: len(os.listdir("/proc/self/fd")) == len(descriptors))


def _is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not count."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
