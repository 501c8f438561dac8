"""The campaign, for a moment and, with a soak, for two minutes on two servers.

And proof that it finds faults.
"""

import asyncio
import contextlib
import json
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest

from campaign import command
from campaign.audit import Audited, audit
from campaign.count import count_items, count_messages
from campaign.disk import SmallDisk
from campaign.faults import DELAYS, KINDS
from campaign.files import Files
from campaign.member import GATEWAY_KINDS, Member
from campaign.mutants import NO_SELECTOR
from campaign.supervisor import NODE, WORKERS, queue_jid
from message_roles import EFFECTS
from notebooks import ACCEPTED, REJECTED, Deed, Notebook
from qos.cli.entry import run_found
from qos.cli.status import Status
from qos.spark.session import NoSpark, check_spark
from qos.testing import friends, logged_in
from qos.testing.processes import completed
from queue_roles import Service, WorkerRole, read_work_records
from role import Connect, Role
from role_processes import Processes
from waiting import PATIENCE, limit, until
from xep_0254 import XEP_0254, NewItem

#: Two minutes of faults, time to start and to finish, and Spark; the rest is for a
#: machine under load.
CAMPAIGN_S = 600.0


async def run(*words: str) -> tuple[int, str, str]:
    """Run the command as an operator does; returns its status and output."""
    done = await completed(
        *(sys.executable, "-P", "-m", "campaign", *words), seconds=CAMPAIGN_S * PATIENCE
    )
    return done.status, done.out, done.err


@pytest.mark.crash
@pytest.mark.xmpp
@pytest.mark.timeout(CAMPAIGN_S + 30)
async def test_a_few_seconds_of_faults_on_a_server_break_nothing(
    tmp_path: Path,
) -> None:
    """However few the messages are: those that were accepted come once."""
    status, out, err = await run(
        *("--minutes", "0.1", "--server", "prosody", "--store", "sqlite"),
        *("--programs", "library", "--out", str(tmp_path / "evidence")),
    )
    assert status == Status.DONE, f"{out}\n{err}"
    assert "Traceback" not in err
    assert re.search(r"^Kept: \d+ faults?, \d+ messages and items: ", out, re.MULTILINE)


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.xmpp
@pytest.mark.timeout(CAMPAIGN_S + 30)
async def test_two_minutes_of_faults_on_two_servers_break_nothing_and_nothing_grows(
    tmp_path: Path,
) -> None:
    """The promise holds against all faults of real use, for a long time.

    How many faults and messages there are in two minutes, and whether anything grows, is
    a matter of time.
    """
    drawn = tmp_path / "soak.svg"
    status, out, err = await run(
        *("--minutes", "2", "--soak", "--plot", str(drawn)),
        *("--out", str(tmp_path / "evidence")),
    )
    assert status == Status.DONE, f"{out}\n{err}"
    assert "Traceback" not in err
    # With only a few events, this would prove nothing.
    counts = {
        kind: [
            int(each)
            for each in re.findall(rf"^{kind} +(\d+) +(\d+)$", out, re.MULTILINE)[0]
        ]
        for kind in KINDS
        if kind not in {"disk full", *DELAYS}
    }
    assert all(sum(pair) for pair in counts.values()), out
    assert min(map(sum, zip(*counts.values(), strict=True))) > 12
    sent = re.findall(r"^(?:messages|queue items).*?\) +([\d,]+)", out, re.MULTILINE)
    assert len(sent) == 6
    assert min(int(each.replace(",", "")) for each in sent) > 130, out
    # Each measure of the oldest processes is there, and each store; see
    # `Series.complaint`.
    judged = re.findall(r"^([a-z]+(?:-[a-z0-9]+)?) .*→", out, re.MULTILINE)
    assert Counter(judged) == {
        **dict.fromkeys(("service", "sender-sqlite", "sender-files"), 2),
        **dict.fromkeys((*WORKERS, "publisher", "receiver-sqlite"), 1),
        "receiver-files": 2,
    }
    assert "<svg" in drawn.read_text()
    with contextlib.suppress(NoSpark):
        check_spark()
        assert re.search(
            r"^The audit of the journals: [\d,]+ lines, ", out, re.MULTILINE
        )


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.xmpp
@pytest.mark.timeout(CAMPAIGN_S + 30)
async def test_a_minute_of_faults_at_the_gateways_breaks_nothing(
    tmp_path: Path,
) -> None:
    """Each kind of client works and is killed: httpx, pyamqp, two links of one name."""
    evidence = tmp_path / "evidence"
    status, out, err = await run(
        *("--minutes", "1", "--server", "prosody", "--store", "sqlite"),
        *("--programs", "gateways", "--out", str(evidence)),
    )
    assert status == Status.DONE, f"{out}\n{err}"
    assert "Traceback" not in err
    assert re.search(r"^Kept: \d+ faults?, [\d,]+ messages and ", out, re.MULTILINE)
    for kind in GATEWAY_KINDS:
        (log,) = evidence.rglob(f"{kind}.log")
        assert log.read_text(), f"{kind} has done nothing"


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.xmpp
@pytest.mark.timeout(CAMPAIGN_S + 30)
async def test_a_campaign_finds_a_service_that_asks_no_selector(tmp_path: Path) -> None:
    """All workers want odd numbers, so whoever gets an even one cannot want it."""
    status, out, err = await run(
        *("--minutes", "0.1", "--server", "prosody", "--store", "sqlite"),
        *("--programs", "library", "--mutant", NO_SELECTOR),
        *("--out", str(tmp_path / "evidence")),
    )
    assert status == Status.NOT_DELIVERED, f"{out}\n{err}"
    assert re.search(r"^prosody, queue items: false: i\d*[02468]$", out, re.MULTILINE)


@pytest.mark.crash
@pytest.mark.parametrize(
    ("mutant", "examples"),
    [
        (NO_SELECTOR, ["false: i0", "false: i2"]),
        ("", ["open: i0", "open: i2"]),
    ],
)
async def test_a_service_that_asks_no_selector_is_found_out(
    tmp_path: Path, mutant: str, examples: list[str]
) -> None:
    """By the members and the counting of a campaign. The only worker wants odd numbers."""
    files = Files(tmp_path, SmallDisk(tmp_path, 1), ("sqlite",))
    queue, worker = queue_jid("loopback"), WORKERS[0]
    async with (
        friends("boss", worker, components={queue: "secret"}) as server,
        Processes(tmp_path) as processes,
        logged_in(server, "boss/1", {"xep_0254": {}}) as boss,
    ):

        def connect(jid: str, port: int) -> Connect:
            return Connect(jid=jid, password="secret", host=server.host, port=port)  # noqa: S106 - in a test

        component = connect(queue, server.component_port)
        service = await processes.start(
            Service(connect=component, store=str(files.queue_store), mutant=mutant)
        )
        await service.until("ready")
        options = {"pubsub#access_model": "open", "queue#keep_accepted": "3600"}
        await XEP_0254.of(boss).create(queue, NODE, options)
        await XEP_0254.of(boss).publish(
            queue,
            NODE,
            [NewItem(item_id=f"i{n}", properties={"parity": n % 2}) for n in range(4)],
        )
        files.published.write_text("i0\ni1\ni2\ni3\n")
        await processes.start(
            WorkerRole(
                connect=connect(f"{worker}@localhost/1", server.port),
                service=queue,
                node=NODE,
                log=str(files.work_records),
                lock_s=60,
                parity=1,
                effects=str(files.effects(worker)),
            )
        )
        wanted = 4 if mutant else 2
        await until(lambda: work_records(files).count("accepted") == wanted)
    assert count_items(files).examples == examples


def work_records(files: Files) -> list[str]:
    return [record.what for record in read_work_records(files.work_records)]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "--minutes"),
        (("--minutes", "0"), "'0' is not a number of minutes"),
        (("--minutes", "1", "--server", "apache"), "apache"),
        (("--minutes", "1", "--out", "{full}"), "there is something in it"),
        (("--minutes", "1", "--plot", "x.svg"), "--plot needs --soak"),
        (("--minutes", "1", "--soak", "--plot", "{full}/no/x.svg"), "no folder"),
    ],
)
def test_wrong_usage_is_one_line(
    tmp_path: Path,
    words: tuple[str, ...],
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And nothing is started. As in the process, but for its own mounts."""
    (tmp_path / "file").touch()
    given = [word.format(full=tmp_path) for word in words]
    status = run_found(lambda: (command, "python -m campaign", given))
    out, err = capsys.readouterr()
    assert (status, out) == (Status.USAGE, "")
    assert problem in err.splitlines()[-1]
    assert "Traceback" not in err


async def test_wrong_usage_of_the_process_is_one_line() -> None:
    """With the mounts of its own."""
    status, out, err = await run("--minutes", "0")
    assert (status, out) == (Status.USAGE, "")
    assert "'0' is not a number of minutes" in err.splitlines()[-1]
    assert "Traceback" not in err


# -- that it would notice --------------------------------------------------


def write(path: Path, *entries: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    return path


def sent(
    number: int,
    status: str | None,
    level: str = "assured",
    *,
    deadline_s: float | None = None,
    withdrawn: bool = False,
) -> list[dict[str, object]]:
    """The lines that a sender writes for a message.

    Without a status it has not ended.
    """
    fate = {"deadline_s": deadline_s, "withdrawn": withdrawn}
    message = {"id": f"m{number}", "body": f"{level} 1-{number}"}
    entries: list[dict[str, object]] = [
        {"event": "begun", **message, **fate},
        {"event": "accepted", **message},
    ]
    if status is not None:
        entries.append({"event": "ended", **message, "status": status})
    return entries


def took(number: int, event: str = "took") -> dict[str, object]:
    return {"event": event, "id": f"m{number}", "body": "", "redelivered": False}


def test_each_way_of_breaking_the_promise_is_counted(tmp_path: Path) -> None:
    """A count that can never be wrong would prove nothing."""
    sender = write(
        tmp_path / "sender.log",
        *sent(1, "delivered"),
        *sent(2, "delivered"),
        *sent(3, "delivered", "acknowledged"),
        *sent(4, "delivered"),
        *sent(5, "not delivered", withdrawn=True),
        *sent(6, "not delivered", deadline_s=2.0),
        *sent(7, "in doubt", deadline_s=2.0),
        *sent(8, None),
        *sent(9, None),
        {"event": "unknown", "id": "m9", "body": "assured 1-9"},
        {"event": "begun", "id": "m10", "body": "assured 1-10"},
        {"event": "refused", "id": "m10", "body": "assured 1-10"},
        {"event": "begun", "id": "m12", "body": "assured 1-12"},
        {"event": "unknown", "id": "m12", "body": "assured 1-12"},
        *sent(13, "not delivered"),
        *sent(14, "in doubt", withdrawn=True),
    )
    receiver = write(
        tmp_path / "receiver.log",
        *(took(1), took(1, "skipped")),
        *(took(2), took(2)),
        *(took(3), took(3)),
        *(took(6), took(10), took(11), took(12)),
    )
    tally = count_messages(sender, receiver)
    assert not tally.clean
    assert tally.accepted == 11
    assert tally.again == 1
    assert tally.doubled == 1  # 2; but not 3, which is acknowledged
    assert tally.lost == 2  # 4 and 9
    # 4, 6, 9, 10, 11 that was never sent, 12, and 13 and 14, which have no reason
    assert tally.false == 8
    assert tally.in_doubt == 2
    assert tally.open == 1  # 8
    shown = {example.split()[1] for example in tally.examples}
    # Five of each kind, sorted by name.
    assert shown == {*("m2", "m4", "m8", "m9", "m10", "m11", "m12", "m13", "m14")}


def test_the_effects_of_a_consumer_are_counted(tmp_path: Path) -> None:
    """They are not in its log: they are in its own tables, or missing."""
    sender = write(
        tmp_path / "sender.log",
        *sent(1, "delivered"),
        *sent(2, "delivered"),
        *sent(3, "delivered"),
        *sent(4, "delivered"),
    )
    receiver = write(tmp_path / "receiver.log", took(1))
    store = tmp_path / "receiver.sqlite"
    _execute(
        store,
        *(f"CREATE TABLE {table} (msg_id TEXT)" for table in EFFECTS),
        "INSERT INTO effect_first VALUES ('m2'), ('m3'), ('m3')",
        "INSERT INTO effect_then VALUES ('m3'), ('m3')",
    )
    tally = count_messages(sender, receiver, store)
    assert tally.doubled == 1  # m3
    assert tally.lost == 1  # m4
    assert tally.false == 2  # m2, of which only half is there, and m4


def test_messages_that_all_came_once_are_clean(tmp_path: Path) -> None:
    """Otherwise every run would fail."""
    sender = write(
        tmp_path / "sender.log",
        *sent(1, "delivered"),
        *sent(2, "in doubt", deadline_s=1.0),
        *sent(3, "not delivered", deadline_s=1.0),
        *sent(4, "not delivered", withdrawn=True),
        # Killed while it was being accepted, and it was not accepted.
        {"event": "begun", "id": "m5", "body": "assured 1-5"},
        {"event": "unknown", "id": "m5", "body": "assured 1-5"},
        # Likewise, but it was accepted: the next run of the sender reports it.
        *sent(6, "delivered"),
    )
    receiver = write(tmp_path / "receiver.log", took(1), took(1, "skipped"), took(6))
    tally = count_messages(sender, receiver)
    assert tally.clean
    assert (tally.lost, tally.doubled, tally.false, tally.open) == (0, 0, 0, 0)


def test_each_way_of_breaking_the_promise_of_a_queue_is_counted(tmp_path: Path) -> None:
    """Lost, doubled, done without being accepted, accepted without being done."""
    files = Files(tmp_path, SmallDisk(tmp_path, 1), ("sqlite",))
    files.published.write_text("i1\ni2\ni3\ni4\n")
    files.work_records.write_text("accepted i4 t 0 1.0\nunwanted i1 t 0 1.0\n")
    _execute(
        files.effects(WORKERS[0]),
        "CREATE TABLE effects (item_id TEXT)",
        "INSERT INTO effects VALUES ('i1'), ('i2'), ('i2'), ('i5')",
    )
    _execute(
        files.queue_store,
        "CREATE TABLE item (node TEXT, item_id TEXT, outcome TEXT)",
        "INSERT INTO item VALUES ('orders', 'i1', 'accepted'),"
        " ('orders', 'i2', 'accepted'), ('orders', 'i3', NULL),"
        " ('orders', 'i4', 'accepted'), ('orders', 'i5', NULL)",
    )
    tally = count_items(files)
    assert tally.accepted == 4
    assert tally.lost == 1  # i4
    assert tally.doubled == 1  # i2
    assert tally.false == 3  # i4 and i5, and i1, which its worker did not want
    assert tally.open == 2  # i3 and i5


def test_each_way_of_breaking_the_promise_through_a_gateway_is_counted(
    tmp_path: Path,
) -> None:
    """By notebooks: an answer that is not known may be either, but only one."""
    files = Files(tmp_path, SmallDisk(tmp_path, 1), ("sqlite",))
    names = [f"h{n}" for n in range(1, 10)]
    files.published_by("http-publisher").write_text("\n".join(names))
    outcomes: dict[str, str | None] = dict.fromkeys(names, "accepted")
    outcomes |= {"h2": "rejected", "h3": "rejected", "twice": "accepted"}
    del outcomes["h9"]
    queue = ", ".join(
        f"('orders', '{name}', '{end}')" for name, end in outcomes.items()
    )
    _execute(
        files.queue_store,
        "CREATE TABLE item (node TEXT, item_id TEXT, outcome TEXT)",
        f"INSERT INTO item VALUES {queue}",  # noqa: S608 - ours
    )
    http, amqp = (
        Notebook(str(files.notebook(kind))) for kind in ("http-worker", "amqp-worker")
    )

    def ends(book: Notebook, item: str, *, confirmed: bool | None = None) -> None:
        deed = Deed(item, REJECTED if item == "h2" else ACCEPTED, f"{item}/{uuid4()}")
        book.took(item, 0)
        book.ends(deed)
        if confirmed is not None:
            book.answered(deed.delivery, confirmed=confirmed)

    for name in ("h1", "h2", "h3", "h5", "h6", "twice"):
        ends(http, name, confirmed=True)
    # Nobody knows whether h4 was confirmed, but it is accepted; h5 was not ours.
    ends(amqp, "h4")
    ends(amqp, "h5", confirmed=False)
    ends(amqp, "h6", confirmed=True)
    # h7 was given back before it came again, and h8 is told by nobody.
    http.took("h7", 0)
    http.gives_back("h7", 0)
    ends(amqp, "h7", confirmed=True)
    tally = count_items(files)
    assert (tally.accepted, tally.delivered, tally.not_delivered) == (9, 7, 2)
    assert tally.lost == 2  # h8, h9
    # h6 was accepted twice; h5 and h6 came again without a higher count.
    assert tally.doubled == 2
    # h3 was accepted and is dead, h8 the other way round, and one is posted twice.
    assert tally.false == 3
    assert {each.split()[1] for each in tally.examples} == {
        *("h3", "h5", "h6", "h8", "h9", "twice")
    }


async def test_only_without_spark_there_is_no_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run whose audit fails for any other reason does not count as a good one."""

    def missing() -> None:
        raise NoSpark("there is no Java")

    (tmp_path / "journals" / "receiver").mkdir(parents=True)
    monkeypatch.setattr("campaign.audit.check_spark", missing)
    assert await audit([tmp_path / "journals"], tmp_path / "out") == "there is no Java"
    monkeypatch.setattr("campaign.audit.check_spark", lambda: None)
    audited = await audit([tmp_path / "journals"], tmp_path / "out")
    assert isinstance(audited, Audited)
    assert audited.failure
    assert not audited.clean
    assert not Audited(0, {}, {}).clean  # nothing was examined
    assert Audited(7, {"in-doubt": 1}, {}).clean


def _execute(path: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


async def test_a_member_that_ends_before_it_is_seen_to_work_has_ended() -> None:
    """Else the run waits for it, and the others go on sending, until time is over."""
    member = Member("desk", "desk", _no_life)

    async def last_life() -> None:
        await until(lambda: member.ending)
        member.done = True

    async with limit():
        await asyncio.gather(member.end(), last_life())


def _no_life(life: int) -> Role:
    raise AssertionError(life)
