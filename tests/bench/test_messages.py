"""`python -m benchmarks`: its figures mean what they say, and its processes end with it."""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.peers import as_used, replying
from benchmarks.rows import Row
from benchmarks.run import Plan, measure
from benchmarks.sample import BenchFailed, Sample, Work
from benchmarks.servers import EmbeddedServer, NamedServer
from benchmarks.settings import FLOOR, STORES, Settings, fan_of, settings_for
from measuring import NO_REPEATS, in_children
from qos.core.backoff import Backoff
from qos.core.message.model import Level
from qos.stream.login import AccountSession
from qos.stream.per_stream import is_foreign
from qos.stream.server import Login
from qos.testing import Link, LoopbackServer, friends, processes
from qos.testing.processes import NotInstalled, ProcessFailed
from qos.testing.prosody import Prosody
from waiting import LIMIT_S, limit, until

STANZAS = {
    "floor of one": 2,
    "floor of two": 4,
    "one Iq.send()": 2,
    "two Iq.send()": 4,
    "unacknowledged": 1,
    "acknowledged": 2,
    "assured": 4,
}

TINY = Work(window=4, payload_bytes=200, seconds=0.2)


@pytest.fixture(autouse=True)
def no_repeats(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Stanzas are counted here; see NO_REPEATS."""
    in_children(monkeypatch, tmp_path_factory.mktemp("code") / "patient", NO_REPEATS)


def bench(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def check(row: dict[str, Any]) -> None:
    """Check the rules for every row, which hold on any machine."""
    kind = row["row"].partition(",")[0]
    if kind == "assured in batches":
        assert 0 < row["stanzas"] <= STANZAS["assured"]
    else:
        assert row["stanzas"] == STANZAS[kind], row
    assert row["wire_bytes"] > row["payload_bytes"]
    for name in ("sender", "receiver", "server"):
        assert 2**20 < row[f"rss_bytes_{name}"] < 2**30
    for sample in row["samples"]:
        seconds, messages = sample["seconds"], sample["messages"]
        assert 0 < sample["p50_s"] <= sample["p99_s"] <= sample["p999_s"] <= seconds
        # Half of the messages took at least this long, and only a window of them runs
        # at a time.
        assert messages / 2 * sample["p50_s"] <= row["window"] * seconds
        cores = os.cpu_count() or 1
        assert sum(sample["cpu_s"].values()) <= (seconds + LIMIT_S) * cores
    assert row["rate"] == median(
        each["messages"] / each["seconds"] for each in row["samples"]
    )


def test_a_run_on_the_embedded_server(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a user runs it, only shorter: the figures agree with each other."""
    plot = tmp_path / "plot.svg"
    words = ["--embedded", "--floor", "--levels", "assured", "--stores", "memory"]
    words += ["--windows", "4", "1", "4", "--seconds", "0.1", "--repeat", "2"]
    found = bench(capsys, *words, "--plot", str(plot))
    rows = {(row["row"], row["window"]): row for row in found["rows"]}
    names = [*(each.name for each in FLOOR), "assured, memory"]
    names.append("assured in batches, memory")
    assert list(rows) == [(name, window) for name in names for window in (1, 4)]
    for row in rows.values():
        check(row)
    for window in (1, 4):
        floor, ours = rows["floor of two", window], rows["assured, memory", window]
        # The server does the same work for both; slixmpp writes "<x />" for "<x/>".
        assert floor["wire_bytes"] == ours["wire_bytes"]
        two = rows["two Iq.send()", window]["wire_bytes"]
        assert two == pytest.approx(ours["wire_bytes"], abs=4)
        pairs = zip(ours["samples"], floor["samples"], strict=True)
        ratios = [
            mine["messages"] / mine["seconds"] / (its["messages"] / its["seconds"])
            for mine, its in pairs
        ]
        assert ours["ratios"] == {"floor of two": pytest.approx(median(ratios))}
        assert floor["ratios"] == {}
    # A single message in flight has stanzas of its own; several share them.
    stanzas = [rows["assured in batches, memory", each]["stanzas"] for each in (1, 4)]
    assert stanzas[0] == 4 > stanzas[1]
    used = rows["assured, memory", 4]
    assert all(used[f"cpu_us_{name}"] > 0 for name in ("sender", "receiver", "server"))
    assert set(found["versions"]) == {"python", "slixmpp", "xmpp-qos"}
    assert found["machine"]["cores"] == os.cpu_count()
    picture = plot.read_text()
    assert "<svg" in picture
    assert picture.count("<!-- assured, memory -->") == 2


@pytest.mark.long
@pytest.mark.xmpp
@pytest.mark.timeout(240)
def test_every_row_on_prosody(capsys: pytest.CaptureFixture[str]) -> None:
    """Each row comes to its end there, with the right number of stanzas."""
    words = [
        "--floor",
        "--sm",
        "--journal",
        "--windows",
        "4",
        "--seconds",
        "0.2",
        "--repeat",
        "1",
    ]
    found = bench(capsys, *words)
    ours = [
        f"{level}, {store}" for level in ("acknowledged", "assured") for store in STORES
    ]
    assert [row["row"] for row in found["rows"]] == [
        *(each.name for each in FLOOR),
        *("unacknowledged", *ours),
        *(f"assured in batches, {store}" for store in STORES),
        "assured, memory, XEP-0198",
        *(f"assured, {store}, journal" for store in STORES),
        *(f"assured in batches, {store}, journal" for store in STORES),
    ]
    for row in found["rows"]:
        check(row)
    assert found["server"]["name"] == "Prosody"
    assert found["server"]["version"][0].isdigit()
    by_name = {row["row"]: row for row in found["rows"]}
    plain, managed = by_name["assured, memory"], by_name["assured, memory, XEP-0198"]
    # Its requests for acknowledgement are no stanzas, but are sent too.
    assert managed["wire_bytes"] > plain["wire_bytes"] + 1
    assert [*managed["ratios"]] == ["assured, memory"]
    journaled = by_name["assured in batches, sqlite, journal"]
    assert [*journaled["ratios"]] == ["assured in batches, sqlite"]
    assert [*by_name["assured, sqlite"]["ratios"]] == ["floor of two"]


# With Prosody the guard measures rows in the gate, and one of test_footprint.
@pytest.mark.long
@pytest.mark.parametrize(
    "server", ["--embedded", pytest.param("--nagle", marks=pytest.mark.xmpp)]
)
def test_many_peers_are_rows_beside_one(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is met before it is measured, so that no request but those of messages is."""
    words = [server, "--levels", "--fan", "9", "--windows", "4", "--seconds", "0.2"]
    found = bench(capsys, *words, "--repeat", "2")
    rows = {row["row"]: row for row in found["rows"]}
    assert list(rows) == [
        f"assured, memory, {way} {count}"
        for way in ("from", "to")
        for count in ("1 address", "9 addresses")
    ]
    for name, row in rows.items():
        check(row)
        one = name.replace("9 addresses", "1 address")
        assert [*row["ratios"]] == [*row["cpu_ratios"]] == [one] * (name != one)


@pytest.mark.long
async def test_each_of_many_peers_has_its_share_of_the_messages(tmp_path: Path) -> None:
    """In turn, as senders and as receivers: none of them is left out."""
    (tmp_path / "server").mkdir()
    rows = [each for each in fan_of(9) if each.without]
    assert [(each.senders, each.receivers) for each in rows] == [(9, 0), (0, 9)]
    server = EmbeddedServer(components=[each.component for each in rows])
    await server.start(tmp_path / "server")
    try:
        for number, settings in enumerate(rows):
            folder = tmp_path / str(number)
            folder.mkdir()
            row = Row(replace(settings, journal=True), server, window_max=4)
            try:
                await row.start(folder)
                await row.measure(TINY)
            finally:
                await row.stop()
            held = Counter(
                (line["from"] if settings.senders else line["to"]).partition("@")[0]
                for file in (folder / "journal").rglob("*.jsonl*")
                for line in map(json.loads, file.read_text().splitlines())
                if line["event"] == "held"
            )
            assert set(held) == set(map(str, range(9)))
            assert max(held.values()) - min(held.values()) <= 1
    finally:
        await server.stop()


IDLE = ("--embedded", "--latency", "--levels", "acknowledged", "--stores", "memory")


def test_an_idle_link_is_idle(capsys: pytest.CaptureFixture[str]) -> None:
    """Otherwise its latency would be that of a busy link, which the kernel treats in
    another way.
    """
    (row,) = bench(capsys, *IDLE, "--seconds", "0.3", "--repeat", "1")["rows"]
    assert row["window"] == 1
    assert 1 <= row["samples"][0]["messages"] <= 0.3 / 0.05 + 1


def test_a_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """With the missing guarantees of the rows, and with the measured versions."""
    assert main([*IDLE, "--seconds", "0.1", "--repeat", "1"]) == 0
    out, err = capsys.readouterr()
    head, title, _, names, window, row = out.splitlines()[:6]
    assert (head, title) == ("", "This library, and the floor")
    assert names.split()[:3] == ["row", "msg/s", "ms"]
    assert window.startswith("window 1, 200 bytes; others used ")
    assert row.startswith("acknowledged, memory  ")
    assert "acknowledged, memory: it may come twice;" in out
    assert "Medians of 1 turns of 0.1 s. the embedded server, python 3." in out
    assert max(map(len, out.splitlines())) <= 120
    assert err == ""


async def test_a_session_of_the_command_is_as_fast_as_any() -> None:
    """A filter that wants to see iqs costs an object for each; this one wants none."""
    client = AccountSession(login("a@localhost", 1)).client
    # slixmpp has no name for them.
    filters = client.__dict__["_XMLStream__filters"]["in"]
    assert filters
    assert not any(map(is_foreign, filters))
    client.add_filter("in", lambda stanza: stanza)
    assert any(map(is_foreign, filters))


# -- a server of the user's ------------------------------------------------


def login(jid: str, port: int, **options: Any) -> Login:
    usual: dict[str, Any] = {
        "password": "secret",
        "host": "127.0.0.1",
        "port": port,
        "tls": "off",
        "ca_file": None,
        "connect_timeout_s": LIMIT_S,
        "backoff": Backoff(),
    }
    return Login(jid=jid, **(usual | options))


async def sample_of(
    settings: Settings, server: NamedServer, folder: Path, work: Work = TINY
) -> Sample:
    row = Row(settings, server, window_max=work.window)
    try:
        await row.start(folder)
        # At first the two ends ask each other for their features.
        await row.measure(work)
        return await row.measure(work)
    finally:
        await row.stop()


@pytest.mark.xmpp
async def test_tls_is_not_counted(tmp_path: Path) -> None:
    """Bytes are those of XMPP: the same with STARTTLS as without."""
    (tmp_path / "server").mkdir()
    (settings,) = settings_for([Level.ASSURED], ["memory"])
    accounts = {"a": "secret", "b": "secret"}
    counts = set()
    async with Prosody(tmp_path / "server", accounts=accounts, tls=True) as prosody:
        for tls in ("off", "starttls"):
            options = {"tls": tls, "ca_file": prosody.ca_file}
            ends = [login(f"{a}@localhost", prosody.c2s_port, **options) for a in "ab"]
            folder = tmp_path / tls
            folder.mkdir()
            found = await sample_of(settings, NamedServer(*ends), folder)
            assert set(found.cpu_s) == {"sender", "receiver"}
            assert found.wire_bytes is not None
            assert found.stanzas == 4 * found.messages
            counts.add(found.wire_bytes / found.messages)
    assert len(counts) == 1


async def test_what_was_handed_over_twice_is_not_measured(tmp_path: Path) -> None:
    """It is easy to be fast with wrong results."""
    (settings,) = settings_for([Level.UNACKNOWLEDGED], [])
    async with friends("a", "b", link=Link(1, duplicate=0.5)) as server:
        ends = [login(f"{user}@localhost", server.port) for user in "ab"]
        with pytest.raises(
            BenchFailed, match=r"\d+ messages were sent, and \d+ handed"
        ):
            await sample_of(settings, NamedServer(*ends), tmp_path)


async def test_an_end_that_dies_is_told(tmp_path: Path) -> None:
    """At once, and with its last lines of the log."""
    (settings,) = settings_for([Level.ASSURED], ["memory"])
    others = children(os.getpid())
    async with friends("a", "b") as server:
        ends = [login(f"{user}@localhost", server.port) for user in "ab"]
        row = Row(settings, NamedServer(*ends), window_max=1)
        try:
            await row.start(tmp_path)
            ours = children(os.getpid()) - others
            (pid,) = (pid for pid in ours if log_of(pid).endswith("/sender.log"))
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(ProcessFailed, match=r"^sender ended with status -9"):
                await row.measure(TINY)
        finally:
            await row.stop()
        assert children(os.getpid()) <= others


async def test_named_accounts_are_used(tmp_path: Path) -> None:
    """By the options and the variable that all commands have."""
    async with LoopbackServer(accounts={"a": "one", "b": "two"}) as server:
        (tmp_path / "b").write_text("two\n")
        process = await start(
            *("--jid", "a@localhost", "--host", "127.0.0.1", "--tls", "off"),
            *("--port", str(server.port), "--to", "b@localhost"),
            *("--to-password-file", str(tmp_path / "b"), "--json"),
            *("--levels", "acknowledged", "--stores", "memory", "--windows", "1"),
            *("--seconds", "0.1", "--repeat", "1"),
            folder=tmp_path,
            password="one",  # noqa: S106
        )
        out, err = await process.communicate()
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found["server"] == {"name": "127.0.0.1", "version": None}
    (row,) = found["rows"]
    assert row["stanzas"] == 2
    assert row["cpu_us_server"] is None


#: The pauses between attempts to connect take no time.
HURRIED = """
import asyncio
from qos.stream import session
runs, passed = asyncio.BaseEventLoop.time, 0.0
async def sleep(seconds):
    global passed
    passed += max(seconds, 0.0)
    await asyncio.sleep(0)
class Hurried:
    sleep = staticmethod(sleep)
    def __getattr__(self, name):
        return getattr(asyncio, name)
session.asyncio = Hurried()
asyncio.BaseEventLoop.time = lambda loop: runs(loop) + passed
"""


def test_a_server_that_is_not_there_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the status is that of every command that finds no server."""
    monkeypatch.setenv("XMPP_QOS_PASSWORD", "secret")
    in_children(monkeypatch, tmp_path / "hurried", HURRIED)
    words = ["--jid", "a@localhost", "--to", "b@localhost", "--tls", "off"]
    words += ["--host", "127.0.0.1", "--port", "9", "--connect-timeout", "60"]
    assert main([*words]) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert "127.0.0.1:9: Connection refused" in err


# -- the life of its processes ---------------------------------------------


async def start(
    *words: str, folder: Path, password: str = "", stderr: int | None = None
) -> asyncio.subprocess.Process:
    program = (
        "import sys; from benchmarks.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", program, *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE if stderr is None else stderr,
        start_new_session=True,
        env=os.environ | {"TMPDIR": str(folder), "XMPP_QOS_PASSWORD": password},
    )


def children(parent: int) -> set[int]:
    """The running processes that a process has started."""
    return {pid for pid, its in parents().items() if its == parent}


def parents() -> dict[int, int]:
    """All running processes, and the process that started each."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, ppid, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        # A process whose status has not been read yet has ended too.
        if state != "Z":
            found[int(stat.parent.name)] = int(ppid)
    return found


def log_of(pid: int) -> str:
    """The file that a process writes its errors to."""
    return os.readlink(f"/proc/{pid}/fd/2")


@pytest.mark.xmpp
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_its_processes_end_with_it(
    number: signal.Signals, tmp_path: Path
) -> None:
    """With Ctrl-C in order; if it is killed, they do not stay behind either."""
    process = await start(
        *("--levels", "assured", "--stores", "sqlite", "--windows", "4"),
        folder=tmp_path,
    )
    try:
        # The server and both ends; a file of one of the ends.
        await until(lambda: len(children(process.pid)) == 3)
        await until(lambda: any(tmp_path.glob("*/rows/0/in*")))
        started = children(process.pid)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        async with limit():
            _, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    await until(lambda: started.isdisjoint(parents()))
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert err == b""
        assert os.listdir(tmp_path) == []


async def test_a_terminal_shows_what_is_being_measured(tmp_path: Path) -> None:
    """Ten minutes without output look like a mistake."""
    ours, its = os.openpty()
    words = [*IDLE, "--seconds", "0.1", "--repeat", "2"]
    process = await start(*words, folder=tmp_path, stderr=its)
    try:
        async with limit():
            await process.communicate()
        shown = os.read(ours, 100_000).decode()
    finally:
        os.close(ours)
        os.close(its)
    row = "window 1, 200 bytes: acknowledged, memory"
    assert f"turn 1 of 2, {row}" in shown
    assert f"turn 2 of 2, {row} (50%, 0 min left)" in shown
    assert shown.endswith("\r\x1b[K")


async def test_a_contender_that_is_not_here_is_left_out(tmp_path: Path) -> None:
    """Not every user has three brokers installed."""

    class Absent:
        name = "absent"
        caveat = ""

        async def start(self, folder: Path) -> None:
            raise NotInstalled("it is not installed")

        async def measure(self, work: Work) -> Sample:
            raise AssertionError

        async def stop(self) -> None:
            stopped.append(self.name)

    stopped: list[str] = []
    told: list[tuple[str, str]] = []
    found = await measure(
        [Absent()],
        Plan(windows=[1], sizes=[200], seconds=0.1, repeat=1),
        tmp_path,
        progress=lambda text, done: None,
        absent=lambda name, why: told.append((name, why)),
    )
    assert (found, told) == ([], [("absent", "it is not installed")])
    assert stopped == ["absent"]


@pytest.mark.long
def test_peers_that_are_not_here_are_told_and_the_rest_is_measured(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the packages that they need, in the table and in JSON."""
    setpriv = processes.find_program("setpriv", "util-linux")
    (tmp_path / "setpriv").symlink_to(setpriv)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(processes, "SBIN", ())
    words = ["--embedded", "--levels", "acknowledged", "--stores", "memory", "--peers"]
    words += ["--windows", "1", "--seconds", "0.05", "--repeat", "1"]
    found = bench(capsys, *words)
    assert [row["row"] for row in found["rows"]] == ["acknowledged, memory"]
    assert found["absent"] == dict.fromkeys(
        (each.name for each in [*replying(), *as_used()]),
        "mosquitto is not installed (Debian package: mosquitto)",
    )
    assert found["versions"]["gmqtt"].startswith("0.")
    assert main([*words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    said = " ".join(out.split())
    assert "At the same promise" in said
    assert "Peers as commonly used" not in said
    assert "MQTT QoS 0, paho-mqtt; MQTT QoS 0, aiomqtt; MQTT QoS 0, gmqtt;" in said
    assert "mosquitto is not installed (Debian package: mosquitto)." in said


async def test_an_error_says_of_whom_it_is(tmp_path: Path) -> None:
    """There may be two dozen contenders; and a script needs the kind of the error."""

    class Failing:
        name = "failing"
        caveat = ""

        async def start(self, folder: Path) -> None:
            pass

        async def measure(self, work: Work) -> Sample:
            raise BenchFailed("sender: no word", unreachable=True)

        async def stop(self) -> None:
            stopped.append(self.name)

    stopped: list[str] = []
    with pytest.raises(BenchFailed, match=r"^failing: sender: no word$") as error:
        await measure(
            [Failing()],
            Plan(windows=[1], sizes=[200], seconds=0.1, repeat=1),
            tmp_path,
            progress=lambda text, done: None,
            absent=lambda name, why: None,
        )
    assert error.value.unreachable
    assert stopped == ["failing"]


# -- wrong usage -----------------------------------------------------------


def test_without_prosody_there_is_another_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named before anything is started."""
    monkeypatch.setenv("PATH", "")
    assert main([]) == 2
    err = capsys.readouterr().err
    assert "prosody is not installed (Debian package: prosody); --embedded" in err
