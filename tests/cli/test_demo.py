"""`xmpp-qos demo`: what it shows, what it says of it, and what it leaves behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from journals import read_journal
from qos.cli import main
from qos.cli.status import Status
from qos.core.message.model import Level
from qos.demo import orders, people
from qos.demo.process import Program, running
from qos.testing import Link
from qos.testing.processes import ProcessFailed
from waiting import LIMIT_S, PATIENCE, limit, until

#: For a whole demo, on a machine under load.
DEMO_S = 100 * PATIENCE

COMMAND = (sys.executable, "-P", "-c", "import sys, qos.cli; sys.exit(qos.cli.main())")

Rows = list[dict[str, Any]]


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo to its end, with its temporary files in this folder."""
    return subprocess.run(
        [*COMMAND, "demo", *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=DEMO_S,
        check=False,
    )


def rows_of(text: str) -> Rows:
    return [json.loads(line) for line in text.splitlines()]


# -- what is shown ---------------------------------------------------------


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine under load nothing is repeated, and the last message is awaited."""
    times = {"retry_first_s": 60.0, "retry_max_s": 60.0, "deadline_s": 60.0}
    monkeypatch.setattr(people, "_OPTIONS", people._OPTIONS | times)
    stop = Program.stop

    async def stop_late(program: Program) -> None:
        await until(lambda: program.reports["counted"] == 30)
        await stop(program)

    monkeypatch.setattr(Program, "stop", stop_late)


@pytest.mark.parametrize(
    ("level", "stanzas"),
    [(Level.UNACKNOWLEDGED, 1), (Level.ACKNOWLEDGED, 2), (Level.ASSURED, 4)],
)
async def test_over_a_perfect_link_it_takes_one_two_and_four_stanzas(
    level: Level, stanzas: int, patient: None, tmp_path: Path
) -> None:
    """The proto-XEP gives these numbers for the levels.

    A few more stanzas find out who supports QoS. Twice as many would be a bug.
    """
    row = await people.count_people(level, 30, Link(1), tmp_path, kills=0)
    assert (row["sent"], row["lost"], row["duplicated"]) == (30, 0, 0)
    assert row["inside"] == row["truth"] == 10
    assert stanzas <= row["stanzas"] < 1.6 * stanzas
    assert row["delivered"] == (30 if level is not Level.UNACKNOWLEDGED else 0)


async def assured_is_exact(folder: Path, link: Link, kills: int) -> None:
    row = await people.count_people(Level.ASSURED, 30, link, folder, kills=kills)
    assert row["exact"], row
    assert (row["lost"], row["duplicated"], row["delivered"]) == (0, 0, 30)
    assert row["kills"] == kills


@pytest.mark.crash
async def test_assured_is_exact_though_the_counter_is_killed(tmp_path: Path) -> None:
    """It dies when it has counted, and before the message counts as taken."""
    await assured_is_exact(tmp_path, Link(7, loss=0.1), kills=1)


@pytest.mark.long
@pytest.mark.crash
def test_the_levels_differ_over_the_same_bad_link(tmp_path: Path) -> None:
    """Without loss there would be no need of them."""
    words = ("--messages", "40", "--loss", "10", "--kills", "2", "--seed", "7")
    done = demo(tmp_path, "--only", "levels", "--no-audit", *words)
    assert done.returncode == 0, done.stderr
    unacknowledged, acknowledged, assured = rows_of(done.stdout)
    assert unacknowledged["lost"] > 0
    assert (unacknowledged["duplicated"], unacknowledged["delivered"]) == (0, 0)
    assert acknowledged["lost"] == 0
    assert acknowledged["delivered"] == 40
    assert assured["exact"]
    assert assured["kills"] == acknowledged["kills"] == 2
    assert all(map(int, re.findall(r"(\d+) stanzas lost", done.stderr)))
    assert "Assured: of 40 messages each was counted once" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.crash
def test_the_queue_is_exact_though_a_bee_is_killed_with_orders(tmp_path: Path) -> None:
    """Another one drops orders, and one order fails for all of them."""
    done = demo(tmp_path, "--only", "queue", "--messages", "30", "--no-audit")
    assert done.returncode == 0, done.stderr
    *bees, queue = rows_of(done.stdout)
    assert [row["bee"] for row in bees] == ["anna", "ben", "carl"]
    for row in bees:
        assert row["begun"] == row["accepted"] + row["failed"] + row["lost"]
    anna, ben, carl = bees
    assert (anna["lost"], ben["lost"]) == (0, 0)
    assert carl["lost"] > 0
    assert sum(row["accepted"] for row in bees) == queue["accepted"] == 29
    assert (queue["lost"], queue["duplicated"], queue["dead"]) == (0, 0, 1)
    assert queue["exact"]
    assert "each of the 29 good orders was packed once" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.parametrize("kills", ["0", "1"])
def test_all_parts_are_shown_and_their_journals_are_audited(
    kills: str, tmp_path: Path
) -> None:
    """As `make demo` has them."""
    done = demo(tmp_path, "--messages", "30", "--loss", "0", "--kills", kills)
    assert done.returncode == 0, done.stderr
    (out,) = tmp_path.iterdir()
    *rows, audit = rows_of(done.stdout)
    assert len(rows) == 3 + 3 + 1
    # The levels acknowledged and assured; the queue, and the queue of dead letters.
    assert audit["outcomes"] == {"delivered": 60}
    assert audit["rows"]["queue_items"] == 31
    assert audit["lines"] == len(read_journal(out / "journals", own=True))
    assert not any((*audit["anomalies"].values(), *audit["problems"].values()))
    assert "Audit of" in (out / "report.html").read_text()
    parts = ("Two doors", "three worker-bees", "kept a journal", f"{out}/journals")
    places = [done.stderr.index(part) for part in parts]
    assert places == sorted(places)
    assert "xmpp-qos: " not in done.stderr  # nor a warning in between
    assert not (out / "stores").exists()


# -- how it ends -----------------------------------------------------------


def processes_with(word: str) -> list[int]:
    """Processes that have this word in their environment or arguments."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in text and int(folder.name) != os.getpid():
            pids.append(int(folder.name))
    return pids


@pytest.mark.parametrize(
    ("only", "number", "file"),
    [
        ("levels", signal.SIGTERM, "*/stores/unacknowledged/book.db"),
        pytest.param(
            *("levels", signal.SIGINT, "*/stores/unacknowledged/book.db"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *("queue", signal.SIGINT, "*/stores/queue/book.db"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_stopped_it_leaves_no_process_and_no_folder(
    tmp_path: Path, only: str, number: signal.Signals, file: str
) -> None:
    """Ctrl-C sends the signal to every process of the terminal."""
    running = subprocess.Popen(
        [*COMMAND, "demo", "--only", only],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + LIMIT_S
        while not list(tmp_path.glob(file)):
            assert time.monotonic() < deadline
            assert running.poll() is None
            time.sleep(0.02)
        assert len(processes_with(str(tmp_path))) >= 2
        os.killpg(running.pid, number)
        _, errors = running.communicate(timeout=LIMIT_S)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 130
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []
    assert processes_with(str(tmp_path)) == []


async def test_a_program_that_fails_ends_the_demo_and_says_why(tmp_path: Path) -> None:
    """The reason stands in its log, which nobody would find."""
    task = {"kill_at": [9], "book": str(tmp_path / "missing" / "book.db")}
    counter = Program("counter", people.__name__, task, tmp_path, kills=0)
    with pytest.raises(ProcessFailed, match=r"counter has ended with status 1: .*open"):
        async with limit(), running(counter):
            raise AssertionError("it cannot be ready")


Parts = Callable[..., None]

LINES = [(number, "Left" if number % 3 == 2 else "Entered") for number in range(30)]


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Parts]:
    """Replace the parts by results; nothing may be left behind by any of them."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))

    def replace(
        *, lines: Sequence[tuple[int, str]] = LINES, packed: Sequence[int] = range(13)
    ) -> None:
        async def count_people(level: Level, *_: object) -> dict[str, Any]:
            row = people.reckon(30, lines, delivered=30, stanzas=120)
            return {"level": level.value, **row}

        async def pack_orders(*_: object) -> tuple[Rows, dict[str, Any]]:
            numbers = [*packed]
            row = orders.reckon(14, numbers, numbers, [(13, 4)])
            return [{"bee": "anna", "begun": 14}], row

        monkeypatch.setattr("qos.cli.demo.count_people", count_people)
        monkeypatch.setattr("qos.cli.demo.pack_orders", pack_orders)

    replace()
    yield replace
    assert list(temporary.iterdir()) == []


def test_in_a_pipe_there_is_json_only_and_all_words_are_on_stderr(
    parts: Parts, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that it can be read by a program."""
    assert main(["demo", "--no-audit"]) == 0
    text = capsys.readouterr()
    *levels, bee, queue = rows_of(text.out)
    assert [row["level"] for row in levels] == [level.value for level in Level]
    assert (bee["bee"], queue["queue"]) == ("anna", "orders")
    assert "Assured: of 30 messages each was counted once" in text.err
    assert "each of the 13 good orders was packed once" in text.err


def test_on_a_terminal_there_are_tables(
    parts: Parts, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aligned, of 88 characters at most, without colours."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["demo", "--no-audit"]) == 0
    text = capsys.readouterr()
    head, *levels, bees, _, queue, orders = text.out.splitlines()
    assert head.split()[:5] == ["level", "sent", "delivered", "lost", "duplicated"]
    assert [line.split()[0] for line in levels] == [level.value for level in Level]
    assert (bees.split()[0], queue.split()[0]) == ("bee", "queue")
    assert orders.split() == ["orders", "14", "13", "0", "0", "1", "yes"]
    assert len({line.rindex("  ") for line in levels}) == 1
    assert max(map(len, (text.out + text.err).splitlines())) <= 92
    assert "\x1b" not in text.out


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (
            {"lines": [*LINES[:28], LINES[0]]},
            "Assured: failed: 2 lost, 1 duplicated, 30 known as delivered.",
        ),
        (
            {"packed": [*range(12), 5]},
            "Queue: failed: 1 good orders lost, 1 duplicated, 1 dead letters.",
        ),
    ],
)
def test_a_part_that_is_not_exact_is_said_and_is_the_exit_status(
    results: dict[str, Any],
    words: str,
    parts: Parts,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both parts are shown, and both have to be exact."""
    parts(**results)
    assert main(["demo", "--no-audit"]) == 1
    text = capsys.readouterr()
    assert words in text.err
    assert len(rows_of(text.out)) == 5


@pytest.mark.parametrize("is_exact", [True, False])
def test_without_java_there_is_no_audit_and_one_line_says_why(
    parts: Parts,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    *,
    is_exact: bool,
) -> None:
    """Most people who try the demo have no Java; result and status must be the same."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    parts(lines=LINES if is_exact else [])
    assert main(["demo", "--only", "levels"]) == (0 if is_exact else 1)
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("No audit of the journals: Spark needs Java")
    assert "openjdk-17-jre-headless" in line


def test_without_spark_there_is_no_audit_and_the_journals_are_kept_where_told(
    parts: Parts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They can be audited elsewhere."""
    monkeypatch.setattr("qos.spark.session._EXTRA", ("pyspark_is_not_here",))
    assert main(["demo", "--only", "levels", "--out", str(tmp_path / "new")]) == 0
    why, where = capsys.readouterr().err.strip().splitlines()[-2:]
    assert "pip install '.[spark]'" in why
    assert where == f"The journals: {tmp_path}/new/journals"


@pytest.mark.parametrize(
    ("found", "status"), [(Status.DONE, 0), (Status.NOT_DELIVERED, 1)]
)
def test_an_anomaly_is_the_exit_status_and_the_report_stays(
    found: Status,
    status: int,
    parts: Parts,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The audit is that of `xmpp-qos audit`, without tolerance."""
    out = tmp_path / "empty"
    report = out / "report.html"
    out.mkdir()

    async def run(arguments: Any) -> Status:
        assert arguments.journals == [f"{out}/journals"]
        assert (arguments.skew, arguments.stuck_after) == (0.001, 1.0)
        assert arguments.json
        assert arguments.out == str(out)
        report.touch()
        return found

    monkeypatch.setattr("qos.spark.session.check_spark", lambda: None)
    monkeypatch.setattr("qos.cli.demo.audit.run", run)
    assert main(["demo", "--out", str(out)]) == status
    assert list(out.iterdir()) == [report]


# -- how it counts ---------------------------------------------------------


def test_what_is_lost_and_what_came_twice_is_counted_by_message() -> None:
    """One lost and one doubled message leave the total right: that is no excuse."""
    row = people.reckon(30, [*LINES[:29], LINES[2]], delivered=30, stanzas=130)
    assert (row["sent"], row["lost"], row["duplicated"]) == (30, 1, 1)
    assert row["inside"] == row["truth"] == 10
    assert row["stanzas"] == 4.3
    assert not row["exact"]


def test_exact_is_each_message_once_and_each_sender_told() -> None:
    assert people.reckon(30, LINES, delivered=30, stanzas=1)["exact"]
    assert not people.reckon(30, LINES, delivered=29, stanzas=1)["exact"]
    assert not people.reckon(30, LINES[:-1], delivered=30, stanzas=1)["exact"]


GOOD = [number for number in range(30) if number != 13]


@pytest.mark.parametrize(
    ("packed", "accepted", "dead", "counts"),
    [
        (GOOD[1:], GOOD, [(13, 4)], (28, 1, 0, 1)),
        (GOOD, GOOD[1:], [(13, 4)], (28, 1, 0, 1)),
        ([*GOOD, 1], GOOD, [(13, 4)], (28, 0, 1, 1)),
        (GOOD, [*GOOD, 1], [(13, 4)], (28, 0, 1, 1)),
        ([*GOOD, 13], [*GOOD, 13], [], (29, 0, 0, 0)),
        (GOOD, GOOD, [], (29, 0, 0, 0)),
        (GOOD, GOOD, [(13, 4), (13, 4)], (29, 0, 0, 2)),
        (GOOD, GOOD, [(12, 4)], (29, 0, 0, 1)),
        (GOOD, GOOD, [(13, 3)], (29, 0, 0, 1)),
    ],
)
def test_each_fault_of_a_queue_alone_makes_it_inexact(
    packed: list[int],
    accepted: list[int],
    dead: list[tuple[int, int]],
    counts: tuple[int, ...],
) -> None:
    """The exit status depends on it."""
    row = orders.reckon(30, packed, accepted, dead)
    names = ("accepted", "lost", "duplicated", "dead")
    assert tuple(row[name] for name in names) == counts
    assert not row["exact"]
    assert orders.reckon(30, GOOD, GOOD, [(13, 4)])["exact"]
