"""`python -m benchmarks footprint`: its figures mean what they say."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import footprint_flat, footprint_outstanding, footprint_stanzas
from benchmarks.__main__ import main
from benchmarks.footprint import Part, Plan, Spread, Target, bytes_below
from benchmarks.footprint_import import measure as measure_import
from benchmarks.sample import BenchFailed
from benchmarks.servers import EmbeddedServer, ProsodyServer
from measuring import in_children, processes_in

TINY = Plan(
    repeat=1,
    messages=300,
    flat_messages=120,
    seconds=0.1,
    pairs=2,
    stanzas=40,
    warm_up=20,
)


def silent(_text: str) -> None:
    """Show no progress."""


# -- import ----------------------------------------------------------------

#: By the clock that is read; the import itself waits for nothing.
SLOW_IMPORT = """
import sys, time
runs, waited = time.perf_counter, 0.0
time.perf_counter = lambda: runs() + waited
class Slow:
    def find_spec(self, name, *_):
        global waited
        if name == "{name}":
            waited += 1000.0
sys.meta_path.insert(0, Slow())
"""


@pytest.mark.parametrize(
    ("name", "other"), [("xep_qos", "slixmpp"), ("slixmpp", "xep_qos")]
)
async def test_an_import_is_that_of_the_plugin_alone(
    name: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of slixmpp is not ours; and a process that waits uses no processor."""
    in_children(monkeypatch, tmp_path / "slow", SLOW_IMPORT.format(name=name))
    told: list[str] = []
    figures: Any = (await measure_import(TINY, told.append)).figures
    assert told == ["import: interpreter 1 of 1"]
    slow, as_usual = figures[name], figures[other]
    assert slow["ms"] - slow["cpu_ms"] > 900_000
    assert 0 < as_usual["cpu_ms"] <= as_usual["ms"] + 1
    assert as_usual["ms"] < 900_000
    assert min(slow["modules"], as_usual["modules"]) > 10


async def test_what_cannot_be_imported_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figure of an import that failed would be a very good one."""
    program = "import sys; sys.modules['xep_qos'] = None"
    in_children(monkeypatch, tmp_path / "none", program)
    with pytest.raises(BenchFailed, match=r"^an interpreter could not .*xep_qos.*$"):
        await measure_import(TINY, silent)


# -- other stanzas ---------------------------------------------------------

#: Five milliseconds for each stanza that the plugin sees: more than any noise.
SLOW_TAP = """
import time
from qos.stream.tap import Tap
look = Tap._filter
def slow(self, stanza):
    until = time.process_time() + 0.005
    while time.process_time() < until:
        pass
    return look(self, stanza)
Tap._filter = slow
"""


@pytest.mark.long
async def test_a_plugin_that_is_slow_is_seen_to_be_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the right amount: of every two stanzas it sees the incoming one."""
    in_children(monkeypatch, tmp_path / "slow", SLOW_TAP)
    server = EmbeddedServer()
    try:
        await server.start(tmp_path)
        part = await footprint_stanzas.measure(server, tmp_path, TINY, silent)
    finally:
        await server.stop()
    figures: Any = part.figures
    for kind, target in zip(("iq", "message"), part.targets, strict=True):
        cost, more = figures[kind]["cpu_us"], figures[kind]["more_percent"]
        assert cost["with"] - cost["only what it needs"] > 1500
        for label in ("with", "with ÷ only what it needs"):
            assert more[label]["median"] > max(100, more["without, again"]["median"])
        assert target.value == more["with"]["median"]
        assert not target.met
    assert processes_in(tmp_path / "0") == []


# -- outstanding -----------------------------------------------------------


@pytest.fixture(scope="module")
def at_prosody(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """A measurement on a Prosody of its own."""

    async def measured(measure: Any, plan: Plan) -> Part:
        folder = tmp_path_factory.mktemp("footprint")
        (folder / "server").mkdir()
        server = ProsodyServer()
        try:
            await server.start(folder / "server")
            found: Part = await measure(server, folder, plan, silent)
        finally:
            await server.stop()
        assert processes_in(folder) == []
        return found

    return measured


@pytest.mark.long
@pytest.mark.xmpp
async def test_memory_is_that_of_what_is_held(at_prosody: Callable[..., Any]) -> None:
    """In a store in memory each payload is kept.

    With one on disk, at most a window of them.
    """
    size = 20_000
    plan = replace(TINY, messages=600, payload_bytes=size)
    part = await at_prosody(footprint_outstanding.measure, plan)
    memory, sqlite = part.figures["memory"], part.figures["sqlite"]
    # A little goes into memory that the process had free before.
    assert memory["rss_bytes"] > 0.95 * 600 * size
    # 256 are in flight, and the rest waits on the disk.
    assert sqlite["rss_bytes"] < memory["rss_bytes"]
    assert sqlite["disk_bytes"] > 600 * size
    assert 0 < sqlite["loaded_s"] < sqlite["start_s"]
    assert sqlite["start_s_without"] > 0
    assert memory["start_s"] is None
    for found in (memory, sqlite):
        ((beside, without),) = found["rates"]
        assert found["rate"]["median"] == pytest.approx(beside / without)
    assert [target.bound for target in part.targets] == [60, 2, 0.9]
    assert part.targets[0].value * 1e6 >= sqlite["rss_bytes"]


# -- flat ------------------------------------------------------------------


@pytest.mark.xmpp
async def test_each_stretch_has_its_own_figures(at_prosody: Callable[..., Any]) -> None:
    """No message between them is left out, and files grow by the written data."""
    part = await at_prosody(footprint_flat.measure, TINY)
    stretches: Any = part.figures["stretches"]
    numbers = [number for each in stretches for number in (each["first"], each["last"])]
    assert numbers == sorted(numbers)
    assert [numbers[0], numbers[-1]] == [TINY.warm_up + 1, TINY.flat_messages]
    assert sum(each["last"] - each["first"] + 1 for each in stretches) == 100
    for each in stretches:
        assert min(each["cpu_us"].values()) > 0
        assert set(each["cpu_us"]) == {"sender", "receiver", "server"}
    first, last = stretches[0], stretches[-1]
    for end in ("sender", "receiver"):
        assert last["file_bytes"][end] > first["file_bytes"][end] > 0
        ratio = last["cpu_us"][end] / first["cpu_us"][end]
        assert part.figures["growth"][end] == pytest.approx(ratio)
    table = part.table().splitlines()
    assert [line.split()[0] for line in table[3:13]] == [
        f"{each['first']:,}-{each['last']:,}" for each in stretches
    ]
    assert table[13].startswith("last ÷ first")


# -- words -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "least", "met"),
    [(1.0, False, True), (1.1, False, False), (1.0, True, True), (0.9, True, False)],
)
def test_a_target_that_is_missed_says_so(value: float, least: bool, met: bool) -> None:
    """A reader of the figure does not have its bound in mind."""
    target = Target("it", value, 1.0, "s", least=least)
    assert target.met is met
    assert ("missed" in str(target)) is not met
    assert f"it: {value:.2f} s (wanted: at {'least' if least else 'most'} 1 s" in str(
        target
    )


def test_what_is_not_a_number_meets_no_target() -> None:
    """It is the figure of a failed measurement."""
    assert not Target("it", float("nan"), 1.0).met
    assert not Target("it", float("nan"), 1.0, least=True).met


def test_quartiles_are_those_of_the_values() -> None:
    """Half of them are between the quartiles; a single value has no spread."""
    assert Spread.of([5, 1, 4, 2, 3]) == Spread(3, 2, 4)
    assert Spread.of([7]) == Spread(7, 7, 7)


def test_the_size_of_files_is_that_of_all_below(tmp_path: Path) -> None:
    """A journal is a folder, a store is a file with others beside it."""
    (tmp_path / "store").write_bytes(b"12")
    (tmp_path / "journal" / "day").mkdir(parents=True)
    (tmp_path / "journal" / "day" / "file").write_bytes(b"345")
    assert bytes_below(tmp_path) == 5
    assert bytes_below(tmp_path / "store", tmp_path / "journal") == 5


# -- the command -----------------------------------------------------------


def test_the_command_measures_what_is_chosen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As a table, and as JSON; without a server where none is needed."""
    words = ["footprint", "--only", "import", "--repeat", "1"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"date", "versions", "server", "machine", "import"}
    (target,) = found["import"]["targets"]
    assert target["value"] == found["import"]["xep_qos"]["ms"]
    assert target["met"] is (target["value"] <= target["bound"])
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "\nImport\n" in out
    assert "the plugin's import: " in out
    assert "Prosody" not in out
    assert err == ""
    assert max(map(len, out.splitlines())) <= 120
