"""`xmpp-qos demo` as a user runs it, and what its figures must show in any run."""

import asyncio
import json
import operator
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from journals import read_journal
from qos.cli import main
from qos.core.message.model import Level
from qos.demo.counter import COUNTED, Book, Count
from qos.demo.process import ProcessDied, SpareProcess, Supervisor
from qos.demo.scenario import ENTERED, LEFT, Passing, inside, kills, people
from qos.demo.table import Row, reckon, render
from waiting import LIMIT_S, PATIENCE, limit

LEVELS = ("--only", "levels", "--no-audit")
QUEUE = ("--only", "queue", "--items", "60", "--no-audit")

#: A shorter run than usual, which surely loses something.
SHORT = ("--messages", "40", "--loss", "0.1", "--cut", "0.02")

PERFECT = ("--loss", "0", "--cut", "0", "--delay", "0")

#: For a whole demo, on a machine under load.
DEMO_S = 100 * PATIENCE

COMMAND = (sys.executable, "-c", "import sys, qos.cli; sys.exit(qos.cli.main())")


def demo(
    folder: Path, *arguments: str, timeout_s: float = DEMO_S, code: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the demo to its end, with its temporary files in this folder.

    Args:
        folder: for them.
        arguments: of the demo.
        timeout_s: for all of it.
        code: a folder with Python code for it and its processes.
    """
    paths = filter(None, (code, os.environ.get("PYTHONPATH")))
    return subprocess.run(
        [*COMMAND, "demo", *arguments],
        env={
            **os.environ,
            "TMPDIR": str(folder),
            "PYTHONPATH": os.pathsep.join(paths),
        },
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def rows_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def cells(table: str, level: str) -> list[str]:
    (line,) = (line for line in table.splitlines() if line.startswith(f"{level} "))
    return line.split()


def check_parts(
    done: subprocess.CompletedProcess[str], folder: Path, *, messages: int
) -> None:
    """The demo is the levels, then the queue, then an audit of their journals."""
    assert done.returncode == 0, done.stderr
    (out,) = folder.iterdir()
    lines = read_journal(out / "journal", own=True)
    assert f"No anomaly, in {done.stdout.rpartition('in ')[2]}" in done.stdout
    assert done.stdout.endswith(f"Report: {out}/report.html\n")
    assert done.stderr.endswith(f"The journals: {out}/journal\n")
    assert "Audit of" in (out / "report.html").read_text()
    told = dict(re.findall(r"^ *([a-z ]+?)  +([\d,]+)$", done.stdout, re.MULTILINE))
    assert told["lines"] == f"{len(lines):,}"
    # The levels acknowledged and assured; the queue, and the queue of dead letters.
    assert (told["messages"], told["delivered"]) == (f"{2 * messages}",) * 2
    assert (told["queue items"], told["problems of journals"]) == ("32", "0")
    for text in (done.stderr, done.stdout):
        assert "\x1b" not in text  # no terminal, no colours
    parts = ("Two doors", "three worker-bees", "kept a journal")
    places = [done.stderr.index(part) for part in parts]
    assert places == sorted(places)
    assert f"Assured: of {messages} messages each was counted once" in done.stdout
    assert "Queue: of 31 items each of the 30 good ones was accepted" in done.stdout
    assert "xmpp-qos: " not in done.stderr  # nor a warning in between


def processes_with(word: str) -> list[int]:
    """Processes that have this word in their environment or arguments."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in text and int(folder.name) != os.getpid():
            found.append(int(folder.name))
    return found


@pytest.mark.crash
@pytest.mark.parametrize(
    ("runs", "killed"),
    # Chance has a part in it, so a second run shows what has none.
    [(1, 1), pytest.param(2, 2, marks=pytest.mark.long)],
)
def test_assured_is_exact_and_the_table_says_what_the_json_says(
    tmp_path: Path, runs: int, killed: int
) -> None:
    """The other levels show why it is needed."""
    words = (*LEVELS, *SHORT, "--kills", str(killed), "--seed", "7", "--json")
    all_done = [demo(tmp_path, *words) for _ in range(runs)]
    for done in all_done:
        assert done.returncode == 0, done.stderr
        unacknowledged, acknowledged, assured = rows_of(done)
        assert (assured["lost"], assured["duplicated"]) == (0, 0)
        assert assured["inside"] == assured["inside_truth"]
        assert assured["outcomes"] == {"delivered": 40}
        assert acknowledged["lost"] == 0
        assert unacknowledged["lost"] > 0
        assert unacknowledged["duplicated"] == 0
        for row in rows_of(done):
            assert row["sent"] == row["arrived"] + row["lost"] == 40
            assert row["stanzas_dropped"] > 0
            # The same text for people, on stderr.
            assert cells(done.stderr, row["level"])[1:6] == [
                *(str(row[name]) for name in ("sent", "arrived", "lost", "duplicated")),
                f"{row['stanzas_per_message']:.1f}",
            ]
        assert [row["kills"] for row in rows_of(done)] == [killed] * 3
    for name in ("seed", "inside_truth"):
        first, *others = [[row[name] for row in rows_of(done)] for done in all_done]
        assert all(other == first for other in others)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
@pytest.mark.timeout(200)
def test_over_a_perfect_link_it_takes_one_two_and_four_stanzas(tmp_path: Path) -> None:
    """The proto-XEP gives these numbers for the levels.

    A few more stanzas find out who supports QoS. Twice as many would be a bug. A busy
    machine repeats nothing, since here an answer may take half a minute. All parts are
    shown, and audited.
    """
    code, folder = tmp_path / "code", tmp_path / "demo"
    code.mkdir()
    folder.mkdir()
    (code / "sitecustomize.py").write_text(
        "import qos.demo.device\n"
        "qos.demo.device._RETRY_FIRST_S = qos.demo.device._RETRY_MAX_S = 30.0\n"
    )
    words = ("--messages", "60", "--kills", "0", "--items", "30", *PERFECT)
    done = demo(folder, *words, code=str(code), timeout_s=180 * PATIENCE)
    check_parts(done, folder, messages=60)
    needed = []
    for level in Level:
        row = cells(done.stdout, level.value)
        assert row[1:5] == ["60", "60", "0", "0"]
        needed.append(float(row[5]))
    assert all(map(operator.ge, needed, (1, 2, 4))), needed
    assert all(map(operator.lt, needed, (1.6, 3.2, 6.4))), needed
    assert "--seed 1" in done.stderr


@pytest.mark.crash
def test_the_queue_is_exact_and_the_table_says_what_the_json_says(
    tmp_path: Path,
) -> None:
    """One of three bees is killed with items, one fails, and one item fails for all of
    them.
    """
    done = demo(tmp_path, *QUEUE, "--seed", "3", "--json")
    assert done.returncode == 0, done.stderr
    *bees, queue = rows_of(done)
    assert [(row["kind"], row["bee"], row["run"]) for row in bees] == [
        ("bee", "anna", 1),
        ("bee", "ben", 1),
        ("bee", "carl", 1),
        ("bee", "carl", 2),
    ]
    for row in bees:
        assert row["received"] == row["accepted"] + row["failed"] + row["lost"]
    lost = [row["lost"] for row in bees]
    assert lost[2] > 0
    assert (lost[0], lost[1], lost[3]) == (0, 0, 0)
    assert bees[1]["failed"] > 0
    assert (queue["kind"], queue["exact"], queue["kills"]) == ("queue", True, 1)
    assert (queue["published"], queue["good"], queue["accepted_once"]) == (61, 60, 60)
    assert queue["accepted_once"] == sum(row["accepted"] for row in bees)
    assert queue["pieces"] == queue["pieces_truth"]
    (dead,) = queue["dead"]
    assert dead["id"] == queue["poisoned"]
    assert len(dead["history"]) == 4
    # The same text for people, on stderr.
    columns = ("received", "accepted", "failed", "lost")
    lines = done.stderr.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("bee  "))
    names = ("anna", "ben, fails at times", "carl, killed", "carl, again")
    for name, row, line in zip(names, bees, lines[start + 1 : start + 5], strict=True):
        assert line.startswith(name)
        assert line.split()[-4:] == [str(row[column]) for column in columns]
    assert f"{dead['id']} is dead" in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.timeout(200)
def test_the_parts_of_a_demo_with_kills_are_audited(tmp_path: Path) -> None:
    """As `make demo` has them."""
    short = ("--messages", "20", "--kills", "1", "--items", "30")
    done = demo(tmp_path, *short, *PERFECT, timeout_s=180 * PATIENCE)
    check_parts(done, tmp_path, messages=20)


@pytest.mark.parametrize(
    ("only", "number", "begun"),
    [
        pytest.param(
            "levels",
            signal.SIGINT,
            "*/unacknowledged/counter.sqlite",
            marks=pytest.mark.long,
        ),
        ("levels", signal.SIGTERM, "*/unacknowledged/counter.sqlite"),
        ("queue", signal.SIGINT, "*/carl.sqlite"),
    ],
)
def test_stopped_it_leaves_no_process_and_no_folder(
    tmp_path: Path, only: str, number: signal.Signals, begun: str
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
        while not list(tmp_path.glob(begun)):
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


@pytest.mark.parametrize(
    "arguments",
    [
        ("--messages", "0"),
        ("--messages", "many"),
        ("--seed", "-1"),
        ("--loss", "0.9"),
        ("--loss", "nan"),
        ("--cut", "1"),
        ("--delay", "-1"),
        ("--kills", "3", "--messages", "2"),
        ("--items", "29"),
        ("--only", "queues"),
        ("--out", "/"),
        ("--out", "/dev/null/demo"),
        ("--level", "assured"),
        ("now",),
    ],
)
def test_wrong_arguments_are_usage_errors(
    arguments: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 2
    text = capsys.readouterr()
    assert text.out == ""
    assert len(text.err.splitlines()) == 1


def test_what_is_not_exact_is_said_and_is_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def lossy(*_: object) -> Row:
        return row_of((0, ENTERED), (0, ENTERED), outcomes={"delivered": 3})

    monkeypatch.setattr("qos.cli.demo_levels.run_level", lossy)
    assert main(["demo", *LEVELS]) == 1
    text = capsys.readouterr().out
    assert "Assured has failed: 2 lost, 1 duplicated" in text
    assert "the doors were told: 3 delivered" in text


Part = Callable[..., None]


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Part:
    """Replace a part by one that ends at once."""

    def part(name: str, *, exact: bool, shown: list[str] | None = None) -> None:
        async def show(*_: object, **__: object) -> bool:
            if shown is not None:
                shown.append(name)
            return exact

        monkeypatch.setattr(f"qos.cli.demo.show_{name}", show)

    return part


@pytest.mark.parametrize("levels", [True, False])
def test_both_parts_are_shown_and_both_have_to_be_exact(
    part: Part, *, levels: bool
) -> None:
    """A part that is not exact must neither hide the other nor pass because of it."""
    shown: list[str] = []
    part("levels", exact=levels, shown=shown)
    part("queue", exact=not levels, shown=shown)
    assert main(["demo", "--no-audit"]) == 1
    assert shown == ["levels", "queue"]


@pytest.mark.parametrize("exact", [True, False])
def test_without_java_there_is_no_audit_and_one_line_says_why(
    part: Part,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    exact: bool,
) -> None:
    """Most people who try the demo have no Java; result and status must be the same."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name in ("levels", "queue"):
        part(name, exact=exact)
    assert main(["demo"]) == (0 if exact else 1)
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("No audit of the journals: Spark needs Java")
    assert "openjdk-17-jre-headless" in line
    assert list(tmp_path.iterdir()) == []


def test_without_spark_there_is_no_audit_and_the_journals_are_kept_where_told(
    part: Part,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They can be audited elsewhere."""
    monkeypatch.setattr("qos.spark.session._EXTRA", ("pyspark_is_not_here",))
    part("levels", exact=True)
    assert main(["demo", "--only", "levels", "--out", str(tmp_path / "new")]) == 0
    why, where = capsys.readouterr().err.strip().splitlines()
    assert "pip install '.[spark]'" in why
    assert where == f"The journals: {tmp_path}/new/journal"


# -- the parts -------------------------------------------------------------


@pytest.fixture
async def spare(tmp_path: Path) -> AsyncIterator[SpareProcess]:
    async with SpareProcess(tmp_path, "qos.demo.counter") as spare:
        yield spare


@pytest.mark.crash
async def test_a_killed_counter_is_replaced(
    spare: SpareProcess, tmp_path: Path
) -> None:
    """Whether or not it ever counts; port 9 is one where nobody answers."""
    task = {"port": 9, "password": "x", "folder": str(tmp_path)}
    supervisor = Supervisor(spare, task)
    running = asyncio.create_task(supervisor.run())
    await asyncio.sleep(0)
    async with limit():
        await asyncio.gather(*(supervisor.kill_soon(COUNTED) for _ in range(2)))
        await supervisor.stop()
        await running
    assert supervisor.kills == 2


async def test_a_counter_that_fails_ends_the_run_and_says_why(
    spare: SpareProcess, tmp_path: Path
) -> None:
    task = {"port": 9, "password": "x", "folder": str(tmp_path / "missing" / "folder")}
    with pytest.raises(ProcessDied, match=r"status 1: .*missing"):
        async with limit():
            await Supervisor(spare, task).run()


def test_the_same_seed_is_the_same_day() -> None:
    assert people(3, 100, per_s=50) == people(3, 100, per_s=50)
    assert people(3, 100, per_s=50) != people(4, 100, per_s=50)
    assert kills(3, 5, among=100) == kills(3, 5, among=100)


@pytest.mark.parametrize("seed", range(20))
def test_nobody_leaves_who_has_not_entered(seed: int) -> None:
    events = [passing.event for passing in people(seed, 300, per_s=100)]
    assert {ENTERED, LEFT} == set(events)
    assert min(inside(events[:end]) for end in range(len(events))) == 0


@pytest.mark.parametrize(("count", "among"), [(0, 5), (1, 1), (3, 3), (7, 100)])
def test_each_kill_has_a_passing_of_its_own(count: int, among: int) -> None:
    due = kills(1, count, among=among)
    assert len(set(due)) == count
    assert all(0 <= place < among for place in due)


def row_of(*counted: tuple[int, str], outcomes: dict[str, int]) -> Row:
    passings = [
        Passing(0, "entrance", 0.0),
        Passing(1, "entrance", 0.1),
        Passing(2, "exit", 0.2),
    ]
    return reckon(
        Level.ASSURED,
        passings,
        passed_at={0: 10.0, 1: 11.0, 2: 12.0},
        book=Book(
            [
                Count(event, number, 10.5 + number + 5 * place)
                for place, (number, event) in enumerate(counted)
            ],
            recognized=4,
        ),
        outcomes=outcomes,
        stanzas=14,
        stanzas_dropped=1,
        cuts=2,
        kills=3,
        seconds=1.25,
    )


def test_what_is_lost_and_what_came_twice_is_counted_by_message() -> None:
    """One lost and one doubled message leave the total right: that is no excuse."""
    counted = ((0, ENTERED), (2, LEFT), (0, ENTERED), (0, ENTERED), (2, LEFT))
    row = row_of(*counted, outcomes={"delivered": 3})
    assert (row.sent, row.arrived, row.lost, row.duplicated) == (3, 2, 1, 2)
    assert (row.inside, row.inside_truth) == (1, 1)
    assert row.median_latency_ms == 3000.0  # of 0.5 s and 5.5 s, the first times
    assert row.stanzas_per_message == 4.67
    assert not row.exact


def test_exact_is_each_message_once_and_each_sender_told() -> None:
    counted = ((0, ENTERED), (1, ENTERED), (2, LEFT))
    assert row_of(*counted, outcomes={"delivered": 3}).exact
    assert not row_of(*counted, outcomes={"delivered": 2, "in doubt": 1}).exact
    assert not row_of(*counted[:2], outcomes={"delivered": 3}).exact


def test_the_table_is_aligned_and_shows_that_nothing_arrived() -> None:
    nothing = row_of(outcomes={"not ended": 3})
    something = row_of((0, ENTERED), outcomes={"delivered": 1, "not ended": 2})
    text = render([nothing, something], bold=False)
    assert len({len(line) for line in text.splitlines()}) == 1
    assert text.splitlines()[2].split() == [
        "assured", "3", "0", "3", "0", "4.7", "-", "0", "(1)",
    ]  # fmt: skip
    assert render([nothing], bold=True).startswith("\x1b[1m")
