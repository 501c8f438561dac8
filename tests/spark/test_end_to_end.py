"""Real endpoints on a real server, killed again and again.

Then the audit of their journals.
"""

import asyncio
import contextlib
import io
import json
import operator
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from crash_pair import Pair
from journals import read_journal
from message_roles import read_log
from qos.audit.snapshot import snapshot, spark_frame
from qos.cli import main
from qos.testing.prosody import Prosody, mutual
from queue_asker import NODE, QUEUE, Asker, asker, until_empty
from queue_roles import AFTER_COMMIT, BEFORE_COMMIT, PublisherRole, Service, WorkerRole
from role import Connect, Role
from role_processes import Processes, RoleProcess
from waiting import until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.crash,
    pytest.mark.xmpp,
    pytest.mark.xdist_group("spark-processes"),
    pytest.mark.timeout(420),
]

USERS = ("alice", "bob", "carol", "mallory")

#: One clock, and everything has ended: any gap in the journals is an anomaly.
STRICT = ("--skew", "0.001", "--stuck-after", "1")

#: Items of one request; enough requests come for all kills.
BATCH = 10
POISON_EVERY = 80
LOCK_S = 2.0
ROUNDS = 9

#: Twenty or so.
DEEDS_BYTES = 1_400


@dataclass(frozen=True)
class Traffic:
    """The data that the endpoints have left.

    Attributes:
        folder: with a journal in `devices`, and one in `queue`.
        took: the log of the receiver; see crash_device.py.
    """

    folder: Path
    took: list[dict[str, Any]]

    @property
    def journals(self) -> list[str]:
        return [str(self.folder / name) for name in ("devices", "queue")]


@pytest.fixture(scope="module")
def traffic(tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    """A sender and a receiver, a queue and its workers; SIGKILL for all of them."""
    folder = tmp_path_factory.mktemp("traffic")
    return asyncio.run(make_traffic(folder, seed=1))


async def make_traffic(folder: Path, *, seed: int) -> Traffic:
    (folder / "prosody").mkdir()
    server = Prosody(
        folder / "prosody",
        accounts={user: f"secret of {user}" for user in USERS},
        rosters=mutual(("alice", "bob")),
        components={QUEUE: "secret of queues"},
    )
    pair = Pair(server, folder, seed=seed, store="sqlite", journal=folder / "devices")
    async with server:
        await Bees(server, folder).run()
        await pair.run(ROUNDS)
    assert "Traceback" not in pair.stderr
    return Traffic(folder, read_log(folder / "receiver.log"))


class Bees:
    """A queue service, two workers and a publisher; all but the last are killed."""

    def __init__(self, server: Prosody, folder: Path) -> None:
        self._folder = folder
        journal = str(folder / "queue")

        def account(name: str) -> Connect:
            return Connect.of_account(server, name)

        service = Service.of(server, QUEUE, folder / "queue.sqlite")
        self._roles: dict[str, Role] = {
            "service": Service(
                connect=service.connect, store=service.store, qos_journal=journal
            ),
            **{
                name: WorkerRole(
                    connect=account(name),
                    log=str(folder / "records"),
                    lock_s=LOCK_S,
                    work_s=0.02,
                    qos_journal=journal,
                    service=QUEUE,
                    node=NODE,
                )
                for name in ("bob/bee", "mallory/bee")
            },
        }
        self._publisher = PublisherRole(
            connect=account("alice/publisher"),
            log=str(folder / "published"),
            count=None,
            batch=BATCH,
            poison_every=POISON_EVERY,
            pause_s=0.2,
            service=QUEUE,
            node=NODE,
        )
        self._server = server
        self._running: dict[str, RoleProcess] = {}

    async def run(self) -> None:
        async with Processes(self._folder) as self._processes, asker(self._server) as a:
            await self._start("service")
            await self._create(a)
            for name in ("bob/bee", "mallory/bee"):
                await self._start(name)
            publisher = await self._processes.start(self._publisher)
            # The service dies in a commit: the journal is ahead of the store, or not.
            for victim, moment in (
                *(("bob/bee", None), ("service", BEFORE_COMMIT)),
                *(("mallory/bee", None), ("service", AFTER_COMMIT), ("bob/bee", None)),
            ):
                await self._flowing()
                await self._kill(victim, moment)
                await self._start(victim)
            await publisher.end()
            await until_empty(a, publisher)
            for process in reversed(self._running.values()):
                await process.end()
            assert "Traceback" not in self._processes.stderr

    async def _create(self, ask: Asker) -> None:
        await ask.create(
            NODE, lock_timeout=str(LOCK_S), max_deliveries="5", backoff="0.05"
        )
        everybody = {"pubsub#access_model": "open", "pubsub#publish_model": "open"}
        await ask.configure(NODE, everybody)

    async def _start(self, name: str) -> None:
        self._running[name] = await self._processes.start(self._roles[name])
        await self._running[name].until("ready")

    async def _kill(self, name: str, moment: signal.Signals | None) -> None:
        process = self._running[name]
        if moment is None:
            await process.kill()
        else:
            await process.arm(moment)
            await process.wait()

    async def _flowing(self) -> None:
        """Wait until more messages or items are done."""
        records = self._folder / "records"

        def size() -> int:
            return records.stat().st_size if records.exists() else 0

        before = size()
        await until(lambda: size() > before + DEEDS_BYTES)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def summary(
    traffic: Traffic, out: Path, spark_as_it_comes: dict[str, str]
) -> dict[str, Any]:
    """The output of the command, run as by an operator; it exits with 0."""
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-P",
                "-c",
                "import sys, qos.cli; sys.exit(qos.cli.main())",
            ),
            *("audit", *traffic.journals, "--out", str(out), "--json", *STRICT),
        ],
        capture_output=True,
        text=True,
        env=spark_as_it_comes,
        timeout=300,
        check=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0, done.stdout
    return dict(json.loads(done.stdout))


def test_after_all_kills_there_is_no_anomaly(
    traffic: Traffic, summary: dict[str, Any]
) -> None:
    """The journals agree with each other, whichever process was killed.

    And none has a gap.
    """
    assert summary["anomalies"] == summary["problems"] == {}
    assert summary["outcomes"].keys() <= {"delivered", "not-delivered"}
    # With only a few events, this would prove nothing.
    lines = [line for journal in traffic.journals for line in read_journal(journal)]
    own = sum(
        line["role"] == "journal"
        for journal in traffic.journals
        for line in read_journal(journal, own=True)
    )
    assert summary["lines"] == len(lines) + own
    boots = Counter((line["node"], line["boot"]) for line in lines)
    lives = Counter(node for node, _ in boots)
    assert lives[QUEUE] == 3
    assert lives["bob@localhost/bee"] >= 2
    assert lives["alice@localhost/controller"] >= ROUNDS // 3
    assert lives["bob@localhost/device"] >= ROUNDS // 3
    assert any(line["event"] == "redelivered" for line in lines)


def test_each_message_that_was_taken_is_a_delivery(
    traffic: Traffic, summary: dict[str, Any], out: Path, spark: SparkSession
) -> None:
    """Compared with the receiver's own notes, which do not come from our code."""
    rows = spark_frame(spark, snapshot(str(out))["deliveries"]).collect()
    assert len(rows) == sum(summary["outcomes"].values())
    handed_over = {row.msg_id for row in rows if row.handed_over_at is not None}
    assert handed_over == {entry["id"] for entry in traffic.took}
    # The kill came before the store had it; its sender was not told otherwise.
    others = [row for row in rows if row.outcome != "delivered"]
    assert {row.condition for row in others} <= {"not-stored"}
    assert not handed_over & {row.msg_id for row in others}
    assert {row.sender_node for row in rows} == {"alice@localhost/controller"}
    known = [row for row in rows if row.outcome == "delivered"]
    assert {row.receiver_node for row in known} == {"bob@localhost/device"}


def test_each_item_that_was_published_is_complete(
    traffic: Traffic, summary: dict[str, Any], out: Path, spark: SparkSession
) -> None:
    """One row for each item, with its end, whichever worker had it when it was killed."""
    rows: list[Row] = spark_frame(spark, snapshot(str(out))["queue_items"]).collect()
    # What came with the commit that never was, was published again as another item.
    items = [row for row in rows if row.condition != "not-stored"]
    published = (traffic.folder / "published").read_text().split()
    assert Counter(row.item for row in items) == Counter(published)
    poisoned = {f"i{number}" for number in range(0, len(published), POISON_EVERY)}
    assert poisoned
    assert {row.item for row in items if row.outcome == "dead"} == poisoned
    bees = {"bob@localhost/bee", "mallory@localhost/bee"}
    for row in items:
        assert (row.service, row.queue) == (QUEUE, NODE)
        assert row.publisher == "alice@localhost"
        assert row.bytes > 0
        assert 0 <= row.wait_s <= row.total_s
        assert set(row.holders) <= bees
        if row.item not in poisoned:
            assert row.outcome == "accepted"
            assert row.handled_by in bees
    assert any(row.timed_out + row.gone for row in items)


def test_what_is_cut_out_of_a_journal_is_lost_and_what_is_added_is_doubled(
    traffic: Traffic, summary: dict[str, Any], tmp_path: Path, spark: SparkSession
) -> None:
    """The audit finds exactly these two faults, and accuses no other node."""
    devices = tmp_path / "devices"
    shutil.copytree(traffic.folder / "devices", devices)
    lost, doubled = once_each(devices)
    edit(devices, lambda line: without(line, lost))
    last = max(
        line["seq"]
        for line in read_journal(devices, own=True)
        if line["boot"] == doubled["boot"]
    )
    again = doubled | {"seq": last + 1}
    edit(
        devices,
        lambda line: [line, again] if is_hand_over(line, doubled) else [line],
    )
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = main(
            [
                *("audit", str(devices), traffic.journals[1]),
                *("--out", str(tmp_path / "out"), "--json", *STRICT),
            ]
        )
    assert status == 1
    found = json.loads(printed.getvalue())
    assert found["anomalies"] == {"lost": 1, "duplicated": 1}, found
    assert found["problems"] == {}
    rows = spark_frame(spark, snapshot(f"{tmp_path}/out")["anomalies"]).collect()
    assert {(row.kind, row.msg_id) for row in rows} == {
        ("lost", lost["msg_id"]),
        ("duplicated", doubled["msg_id"]),
    }
    assert found["rows"] == summary["rows"] | {"anomalies": 2}


def without(line: dict[str, Any], lost: dict[str, Any]) -> list[dict[str, Any]]:
    """A line of a device that has never written the lost one: a hole proves nothing."""
    if is_hand_over(line, lost):
        return []
    later = line["boot"] == lost["boot"] and line["seq"] > lost["seq"]
    return [line | {"seq": line["seq"] - later}]


def is_hand_over(line: dict[str, Any], like: dict[str, Any]) -> bool:
    return (line["event"], line.get("msg_id")) == ("handed-over", like["msg_id"])


def once_each(journal: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The hand-overs of two assured messages, by two processes, and not repeated.

    Of the first one the lines can prove everything: each end had one process for all of
    it, and that of the receiver has written lines before it and after it. A process
    that is killed may leave lines unwritten.
    """
    messages: dict[str, list[dict[str, Any]]] = {}
    boots: dict[str, list[str]] = {}
    for line in read_journal(journal):
        boots.setdefault(line["boot"], []).append(line["at"])
        if line.get("level") == "assured":
            messages.setdefault(line["msg_id"], []).append(line)
    proven, others = [], []
    for lines in messages.values():
        hand_overs = [each for each in lines if each["event"] in _HAND_OVERS]
        if len(hand_overs) == 1:
            (one,) = hand_overs
            there, times = boots[one["boot"]], [each["at"] for each in lines]
            inside = min(there) < min(times) and max(times) < max(there)
            if inside and len({each["boot"] for each in lines}) == 2:
                proven.append(one)
            if min(there) < one["at"] < max(there):
                others.append(one)
    lost = min(proven, key=_at)
    return lost, max((one for one in others if one["boot"] != lost["boot"]), key=_at)


_HAND_OVERS = frozenset({"handed-over", "redelivered"})
_at = operator.itemgetter("at")


def edit(
    journal: Path, change: Callable[[dict[str, Any]], list[dict[str, Any]]]
) -> None:
    """Write each line of a journal again, changed."""
    for path in journal.glob("date=*/*.jsonl"):
        lines = [json.loads(text) for text in path.read_text().splitlines()]
        new = [each for line in lines for each in change(line)]
        path.write_text("".join(f"{json.dumps(each)}\n" for each in new))
