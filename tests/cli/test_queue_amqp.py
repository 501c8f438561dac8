"""`queue serve --amqp` and `queue amqp-user`; wrong options: test_queue_gateways.py."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from proton import Message, Timeout
from proton.utils import BlockingConnection, LinkDetached

from qos.testing.ports import free_ports
from waiting import LIMIT_S, until

if TYPE_CHECKING:
    from tests.cli.conftest import Commands

SECRET = "secret of queues"  # noqa: S105 - of the embedded server
ANY = "any"
LOCAL = ("--amqp", "127.0.0.1:0")


async def write_user(commands: Commands, name: str, *words: str) -> str:
    file = commands.folder / "users"
    input_ = b"" if words else b"secret\n"
    ended = await commands.run("queue", "amqp-user", file, name, *words, input_=input_)
    assert (ended.status, ended.out) == (0, []), ended.err
    return str(file)


async def serve(commands: Commands, *words: str) -> int:
    """Serve AMQP; returns its port."""
    serving = await commands.serve(*LOCAL, *words)
    (line,) = [each for each in serving.err if "amqp" in each]
    return int(line.rpartition(":")[2])


async def test_amqp_and_xmpp_are_at_one_queue(commands: Commands) -> None:
    """A message of an AMQP client is browsed by XMPP, and the other way round."""
    users = await write_user(commands, "shop")
    port = await serve(commands, "--amqp-users", users)
    assert (await commands.queue("create")).status == 0
    given = await commands.queue("affiliate", "shop@queue.localhost=owner")
    assert given.status == 0, given.err
    item = ("--payload", "<order xmlns='shop'>7</order>", "--id", "i")
    assert (await commands.queue("publish", *item)).status == 0

    def work() -> object:
        url = f"amqp://shop:secret@127.0.0.1:{port}"
        client = BlockingConnection(url, allowed_mechs="PLAIN", timeout=LIMIT_S)
        client.create_sender("orders").send(Message(id="m", body="by AMQP"))
        receiver = client.create_receiver("orders", credit=1)
        found = receiver.receive(timeout=LIMIT_S)
        receiver.accept()
        body = bytes(memoryview(found.body))  # type: ignore[arg-type]  # it is one
        client.close()
        return body

    assert await asyncio.to_thread(work) == b"<order xmlns='shop'>7</order>"
    left = (await commands.queue("browse")).out
    assert [each["id"] for each in left] == ["string:m"]
    assert "<body>by AMQP</body>" in str(left[0]["payload"])


async def test_an_account_that_may_only_publish_does_not_consume(
    commands: Commands,
) -> None:
    """As the guide says of publish-only."""
    users = commands.user_file()
    port = await serve(commands, "--amqp-users", users)
    assert (await commands.queue("create")).status == 0
    given = await commands.queue("affiliate", "shop@queue.localhost=publish-only")
    assert given.status == 0, given.err

    def work() -> str:
        url = f"amqp://shop:secret@127.0.0.1:{port}"
        client = BlockingConnection(url, allowed_mechs="PLAIN", timeout=LIMIT_S)
        client.create_sender("orders").send(Message(id="m", body="by AMQP"))
        with pytest.raises(LinkDetached) as refused:
            client.create_receiver("orders", credit=1)
        client.close()
        return str(refused.value.condition)

    assert await asyncio.to_thread(work) == "amqp:unauthorized-access"
    assert len((await commands.queue("browse")).out) == 1


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


async def test_a_user_is_written_changed_and_removed(commands: Commands) -> None:
    file = Path(await write_user(commands, "shop"))
    await write_user(commands, "lamp@example.org", "--certificate")
    first = lines(file)
    assert first[0].startswith("shop:scrypt:")
    assert first[1] == "lamp@example.org:*"
    assert os.stat(file).st_mode & 0o777 == 0o600
    await write_user(commands, "shop")
    again = lines(file)
    assert again[0] == first[1]
    assert again[1].startswith("shop:")
    assert again[1] != first[0]
    await write_user(commands, "shop", "--remove")
    assert lines(file) == [first[1]]
    gone = await commands.run("queue", "amqp-user", file, "shop", "--remove")
    assert (gone.status, "has no user 'shop'" in gone.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("a/b",), "'a/b' is neither"),
        (("shop",), "the password is empty"),
    ],
)
async def test_a_wrong_user_is_not_written(
    commands: Commands, words: tuple[str, ...], says: str
) -> None:
    file = commands.folder / "users"
    ended = await commands.run("queue", "amqp-user", file, *words, input_=b"\n")
    assert (ended.status, file.exists()) == (2, False)
    assert says in ended.err


async def test_a_file_that_cannot_be_written_is_named(commands: Commands) -> None:
    file = commands.folder / "none" / "users"
    ended = await commands.run("queue", "amqp-user", file, "shop", input_=b"secret\n")
    assert ended.status == 2
    assert f"{file} cannot be written: No such file or directory" in ended.err


async def test_the_config_file_may_name_both_files_of_tls(commands: Commands) -> None:
    users = commands.user_file()
    config = commands.folder / "config.toml"
    config.write_text(
        f'amqp = "127.0.0.1:0"\namqp-users = "{users}"\namqp-tls = ["c.pem", "k.pem"]\n'
    )
    ended = await commands.run(
        *("queue", "serve", "--component", "queue.localhost", "--config", config),
        password=ANY,
    )
    assert ended.status == 2
    assert "--amqp-tls c.pem k.pem: " in ended.err


async def test_a_worker_and_a_consumer_share_a_queue(commands: Commands) -> None:
    """XMPP and AMQP at once: each item goes to one of them."""
    users = commands.user_file()
    port = await serve(commands, "--amqp-users", users)
    assert (await commands.queue("create")).status == 0
    rights = ("shop@queue.localhost=owner", "bob@localhost=member")
    assert (await commands.queue("affiliate", *rights)).status == 0
    # Whoever is faster: the worker has its first item, and goes on after the consumer.
    got, go_on = commands.folder / "got", commands.folder / "go on"
    wait = f"while [ ! -e '{go_on}' ]; do sleep 0.05; done"
    program = f"cat >> {got}; echo >> {got}; {wait}"
    worker = await commands.start(
        *("worker", "queue.localhost", "orders", "--", "sh", "-c", program), user="bob"
    )
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    consumed: list[str] = []

    def consume() -> None:
        url = f"amqp://shop:secret@127.0.0.1:{port}"
        client = BlockingConnection(url, allowed_mechs="PLAIN", timeout=LIMIT_S)
        sender = client.create_sender("orders")
        for number in range(60):
            sender.send(Message(body=f"item {number}"))
        receiver = client.create_receiver("orders", credit=1)
        while not ended.is_set():
            try:
                message = receiver.receive(timeout=0.3)
            except Timeout:
                continue
            consumed.append(str(message.body))
            receiver.accept()
            if len(consumed) > 20:
                # The rest is for the worker.
                break
        client.close()
        go_on.touch()

    def worked() -> list[str]:
        return re.findall("<body>(.*?)</body>", got.read_text() if got.exists() else "")

    task = loop.run_in_executor(None, consume)
    try:
        await until(lambda: len(consumed) + len(worked()) >= 60)
    finally:
        ended.set()
        await task
    worker.process.terminate()
    assert (await worker.end()).status == 0
    assert (await commands.queue("browse")).out == []
    found = consumed + worked()
    assert sorted(found) == sorted(f"item {number}" for number in range(60))
    assert consumed
    assert worked()


def pass_on(port: int, message: str) -> object:
    """Send a message to the queue by AMQP, and take one from it."""
    url = f"amqp://shop:secret@127.0.0.1:{port}"
    client = BlockingConnection(url, allowed_mechs="PLAIN", timeout=LIMIT_S)
    client.create_sender("orders").send(Message(body=message))
    receiver = client.create_receiver("orders", credit=1)
    body = receiver.receive(timeout=LIMIT_S).body
    receiver.accept()
    client.close()
    return body


async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()


async def test_amqp_is_served_while_the_xmpp_server_is_away(
    commands: Commands,
) -> None:
    """At the start, and after a session was lost; the store is the same all the time."""
    users = commands.user_file()
    serving = await commands.serve()
    assert (await commands.queue("create")).status == 0
    given = await commands.queue("affiliate", "shop@queue.localhost=owner")
    assert given.status == 0, given.err
    serving.process.terminate()
    await serving.end()
    (component_port,) = free_ports(1)
    serving = await commands.start(
        *("queue", "serve", "--component", "queue.localhost"),
        *("--port", str(component_port), "--connect-timeout", "3600"),
        *("--store", f"sqlite:{commands.folder / 'queues.db'}"),
        *("--retry-first", "0.1", "--retry-max", "0.3"),
        *(*LOCAL, "--amqp-users", users),
        password=SECRET,
    )
    port = int((await serving.note("amqp://")).rpartition(":")[2])
    assert not any("ready" in each for each in serving.err)
    assert await asyncio.to_thread(pass_on, port, "no session yet") == "no session yet"
    attempts = 0

    def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        writer.close()

    # Longer than the time in which a session had to be there without a gateway.
    serving.turn_clock()
    async with await asyncio.start_server(refuse, "127.0.0.1", component_port):
        await until(lambda: attempts > 1)
    assert await asyncio.to_thread(pass_on, port, "nor now") == "nor now"

    carried: list[asyncio.StreamWriter] = []

    async def accept(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there = await asyncio.open_connection("127.0.0.1", commands.component_port)
        carried.extend((writer, there[1]))
        await asyncio.gather(carry(reader, there[1]), carry(there[0], writer))

    server = await asyncio.start_server(accept, "127.0.0.1", component_port)
    assert await serving.note("ready") == "ready queue.localhost"
    item = ("--payload", "<order xmlns='shop'/>", "--id", "i")
    assert (await commands.queue("publish", *item)).status == 0
    server.close()
    for each in carried:
        each.close()
    await serving.note("trying again")
    for _ in range(2):
        # The first one that it takes is the item of XMPP.
        await asyncio.to_thread(pass_on, port, "lost")
    serving.process.terminate()
    ended = await serving.end()
    assert "what is in the queues stays in the store" in ended.err
    assert ended.out == []
