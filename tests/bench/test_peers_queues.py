"""Queues as peers: the real RabbitMQ and JetStream, and the data that they store."""

import asyncio
import re
import sys
from pathlib import Path

import aio_pika
import nats
import pytest
from nats.js.api import RetentionPolicy, StorageType, StreamInfo

from amqp_bench import rhea_folder
from benchmarks.amqp_clients import CLIENTS
from benchmarks.brokered import need_modules
from benchmarks.nats_server import JetStream
from benchmarks.peers import as_used, queue_peers, replying
from benchmarks.rabbitmq import RabbitMq
from benchmarks.sample import Contender, Work
from measuring import check, left_in, processes_in
from qos.testing import processes
from qos.testing.processes import NotInstalled, completed, find_program
from waiting import limit

WORK = Work(window=4, payload_bytes=200, seconds=0.2)
AGAIN = Work(window=1, payload_bytes=0, seconds=0.05)


# The start alone can take most of a minute on a machine under load.
@pytest.mark.long
@pytest.mark.timeout(150)
@pytest.mark.parametrize("client", [None, *CLIENTS])
async def test_a_queue_of_rabbitmq_is_durable_and_empty_in_the_end(
    client: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is compared with a queue on disk, and each counted item was acknowledged."""
    monkeypatch.setenv("NODE_PATH", str(rhea_folder()))
    contender = RabbitMq(client)
    try:
        await contender.start(tmp_path)
        check(await contender.measure(WORK), WORK, in_window=False)
        check(await contender.measure(AGAIN), AGAIN, in_window=False)
        assert await _left_in_rabbitmq(tmp_path) == 0
        # RabbitMQ's own helper processes work in other folders.
        assert len(processes_in(tmp_path)) >= 4
    finally:
        await contender.stop()
    assert not await left_in(tmp_path)


async def _left_in_rabbitmq(folder: Path) -> int:
    found = re.search(r"127.0.0.1:(\d+)", (folder / "rabbitmq.conf").read_text())
    assert found is not None
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{found[1]}/")
    async with connection, limit():
        channel = await connection.channel()
        while True:
            # Declaring it durable would fail for a queue that is not.
            queue = await channel.declare_queue("bench", durable=True)
            left = queue.declaration_result.message_count
            if not left:
                return 0
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("confirmed", [False, True])
async def test_a_queue_of_jetstream_is_on_files_and_empty_in_the_end(
    confirmed: bool, tmp_path: Path
) -> None:
    """Likewise; where acknowledgements are confirmed, it is empty at once."""
    contender = JetStream(confirmed=confirmed)
    try:
        await contender.start(tmp_path)
        check(await contender.measure(WORK), WORK, in_window=False)
        check(await contender.measure(AGAIN), AGAIN, in_window=False)
        stream = await _stream(tmp_path, wait=not confirmed)
        assert stream.state.messages == 0
        assert stream.config.storage == StorageType.FILE
        assert stream.config.retention == RetentionPolicy.WORK_QUEUE
        assert len(processes_in(tmp_path)) == 3
    finally:
        await contender.stop()
    assert not await left_in(tmp_path)


async def _stream(folder: Path, *, wait: bool) -> StreamInfo:
    found = re.search(r"127.0.0.1:(\d+)", (folder / "nats.conf").read_text())
    assert found is not None
    client = await nats.connect(f"nats://127.0.0.1:{found[1]}")
    async with limit():
        while True:
            stream = await client.jetstream().stream_info("bench")
            if not (wait and stream.state.messages):
                break
            await asyncio.sleep(0.05)
    await client.close()
    return stream


async def test_a_server_that_cannot_sync_every_write_is_said_in_one_line(
    tmp_path: Path,
) -> None:
    """The version of Debian 12 cannot; with a newer one, the row does it."""
    asked = await completed(find_program("nats-server", "nats-server"), "--version")
    version = asked.out
    contender = JetStream(confirmed=True, synced=True)
    try:
        if re.search(r"v2\.\d\.", version):
            with pytest.raises(
                NotInstalled, match=r"^nats-server is too old.*sync_interval$"
            ):
                await contender.start(tmp_path)
        else:
            await contender.start(tmp_path)
            check(await contender.measure(WORK), WORK, in_window=False)
    finally:
        await contender.stop()
    assert not await left_in(tmp_path)


QUEUES = [
    (RabbitMq(), "aio_pika", "rabbitmq-server"),
    (RabbitMq("proton"), "proton", "rabbitmq-server"),
    (JetStream(confirmed=True), "nats", "nats-server"),
]


@pytest.mark.parametrize(("contender", "module", "package"), QUEUES)
async def test_a_queue_that_is_not_there_is_said_in_one_line(
    contender: Contender,
    module: str,
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """The benchmark leaves the row out, and names the package to install."""
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        patch.setattr(processes, "SBIN", ())
        with pytest.raises(NotInstalled, match=rf"^{package} .*package: {package}\)$"):
            await contender.start(tmp_path)
        await contender.stop()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        NotInstalled,
        match=r"^there is no .*('\.\[amqp\]'|--group benchmarks) in the folder of xmpp-qos$",
    ):
        await contender.start(tmp_path)
    await contender.stop()
    assert not await left_in(tmp_path)


def test_every_row_has_a_name_of_its_own_and_a_caveat() -> None:
    """None of them promises what this library does."""
    contenders = [*as_used(), *replying(), *queue_peers()]
    assert len({each.name for each in contenders}) == len(contenders) == 21
    assert all(each.caveat for each in contenders)


def test_a_library_that_is_not_there_is_named_with_what_installs_it() -> None:
    """The user has to know which package to install."""
    with pytest.raises(NotInstalled, match="pip install --group benchmarks"):
        need_modules("no_such_module")
