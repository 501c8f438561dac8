"""Power cuts at any moment: everything that a durable store has confirmed is there.

`python -m power_cut --states N` tries any number of states, and prints how many; here
are some of each cut.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from power_cut import campaign, main
from power_cut_disk import (
    ROOT,
    Ack,
    Entered,
    Operation,
    Renamed,
    Sync,
    Trace,
    Tree,
    Written,
    cuts,
    states,
)
from power_cut_stores import FILES, QUEUE, SQLITE, Kind
from power_cut_trace import Recorder, RecordError
from power_cut_writer import Weakness

KINDS = pytest.mark.parametrize("kind", [SQLITE, QUEUE, FILES], ids=lambda k: k.name)

WEAK = [
    pytest.param(kind, weakness, id=f"{kind.name}, {weakness.value}")
    for kind in (SQLITE, QUEUE, FILES)
    for weakness in kind.weaknesses
]


@KINDS
def test_no_power_cut_loses_what_was_done_or_tears_what_was_not(kind: Kind) -> None:
    """The promise of a durable store, which a killed process alone does not test."""
    result = campaign(kind, states=250)
    assert result.lost == 0, result.first
    assert result.cuts > 50
    assert result.states > 90


def test_no_module_of_the_folder_where_it_is_started_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorded child would be another program than ours."""
    (tmp_path / "pickle.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert campaign(FILES, states=2).states > 0


@pytest.mark.parametrize(("kind", "weakness"), WEAK)
def test_a_store_that_does_not_sync_is_found_out(
    kind: Kind, weakness: Weakness
) -> None:
    """A test that cannot find a loss does not prove that there is none."""
    assert campaign(kind, states=40, weakness=weakness).lost > 0


def test_the_table_says_how_many_states_were_tried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody can have these figures, from a command whose status is for scripts."""
    some = replace(FILES, weaknesses=(Weakness.NO_FOLDER_SYNC,))
    monkeypatch.setattr("power_cut.KINDS", (some,))
    assert main(["--states", "40"]) == 0
    header, whole, weak = capsys.readouterr().out.splitlines()
    assert header.split()[-2:] == ["states", "lost"]
    assert whole.split()[-1] == "0"
    assert int(weak.split()[-1]) > 0


# -- the record -------------------------------------------------------------


def recorded(folder: Path, code: str) -> Trace:
    """The record of a program in `folder/disk`, where it is started."""
    disk = folder / "disk"
    disk.mkdir()
    recorder = Recorder(disk, folder / "acks")
    text = f"import os; disk = {str(disk)!r}; acks = {str(folder / 'acks')!r}; {code}"
    recorder.run([sys.executable, "-P", "-c", text])
    return recorder.trace


def test_a_program_is_recorded_call_by_call(tmp_path: Path) -> None:
    """A change of a name belongs to the folder, a change of content to the file."""
    trace = recorded(
        tmp_path,
        "f = open(disk + '/a', 'wb', 0); f.write(b'12'); f.write(b'3'); os.fsync(f);"
        "os.rename(disk + '/a', disk + '/b'); os.truncate(disk + '/b', 1);"
        "d = os.open(disk, os.O_RDONLY); os.fsync(d); open(acks, 'w').write('told')",
    )
    kinds = [type(operation).__name__ for operation in trace.operations]
    assert kinds == ["Entered", "Written", "Written", "Renamed", "Resized"]
    file = trace.operations[1].node
    assert [each.node for each in trace.operations] == [ROOT, file, file, ROOT, file]
    assert [sync.node for sync in trace.syncs] == [file, ROOT]
    assert [ack.text for ack in trace.acks] == ["told"]
    assert list(trace.tree.contents()) == [("b", b"1")]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("os.link(acks, disk + '/a')", "not known"),
        (
            "os.mkdir(disk + '/d'); open(disk + '/a', 'w');"
            "os.rename(disk + '/a', disk + '/d/a')",
            "from one folder to another",
        ),
        (
            "import mmap; f = open(disk + '/a', 'w+b'); f.write(b'1'); f.flush();"
            "mmap.mmap(f.fileno(), 1)[0] = 50",
            "through memory",
        ),
        ("os.chdir(disk); open('a', 'w').write('1')", "not what happened to a"),
        ("raise SystemExit('no luck')", "no luck"),
    ],
)
def test_what_cannot_be_recorded_is_said(tmp_path: Path, code: str, said: str) -> None:
    """Half a record would prove something false."""
    (tmp_path / "acks").touch()
    with pytest.raises(RecordError, match=said):
        recorded(tmp_path, code)


def test_what_follows_from_the_record_must_be_there(tmp_path: Path) -> None:
    """So a forgotten system call is found."""
    disk = tmp_path / "disk"
    disk.mkdir()
    recorder = Recorder(disk, tmp_path / "acks")
    (disk / "unseen").touch()
    with pytest.raises(RecordError, match="unseen"):
        recorder.run([sys.executable, "-P", "-c", ""])


# -- the disk ---------------------------------------------------------------


def trace_of(*operations: Operation, **events: object) -> Trace:
    """A trace with these operations, their files and folders."""
    tree = Tree()
    for operation in operations:
        if isinstance(operation, Entered):
            tree.files[operation.child] = bytearray()
    return Trace(tree, list(operations), **events)  # type: ignore[arg-type]


def when(place: int) -> dict[str, int]:
    return {"started": place, "ended": place}


def left(trace: Trace) -> list[set[tuple[tuple[str, bytes | None], ...]]]:
    """For each cut, all states that may be there."""
    return [
        {tuple(tree.contents()) for tree in states(cut, 999, random.Random(1))}
        for cut in cuts(trace)
    ]


MADE = Entered(node=ROOT, name="a", child=1, **when(1))
FILLED = Written(node=1, offset=0, data=b"1", **when(2))
RENAMED = Renamed(node=ROOT, old="a", new="b", child=1, **when(5))


def test_what_is_not_synced_may_be_there_or_not() -> None:
    """A sync of the file does not sync its name, nor the reverse."""
    trace = trace_of(
        *(MADE, FILLED, RENAMED),
        syncs=[Sync(1, 3, 4), Sync(ROOT, 6, 7)],
        end=9,
    )
    first, second, last = left(trace)
    assert first == {(), (("a", b""),), (("a", b"1"),)}
    # The new name may be there although the old one never was: no order is assumed.
    assert second == {(), (("a", b"1"),), (("b", b"1"),)}
    assert last == {(("b", b"1"),)}


def test_a_sync_covers_what_had_ended_when_it_began() -> None:
    """Another thread may write meanwhile; and `told` counts from its start."""
    late = Written(node=1, offset=1, data=b"2", started=2, ended=4)
    trace = trace_of(
        MADE,
        *(FILLED, late),
        syncs=[Sync(ROOT, 2, 2), Sync(1, 3, 5)],
        acks=[Ack("x", 6)],
        end=6,
    )
    *_, cut = cuts(trace)
    assert list(cut.open) == [late]
    assert [ack.text for ack in cut.acks] == ["x"]


def test_a_long_write_may_be_torn() -> None:
    """A disk writes sectors, and a file system may set the length of a file first."""
    data = bytes([1]) * 512 + bytes([2]) * 512
    long = Written(node=1, offset=0, data=data, **when(3))
    trace = trace_of(MADE, long, syncs=[Sync(ROOT, 2, 2)], end=4)
    torn = (b"", data[:512], bytes(512) + data[512:], bytes(1024), data)
    assert left(trace)[-1] == {(("a", each),) for each in torn}


def test_of_many_states_some_are_tried_and_the_ends_always() -> None:
    """ "Nothing" and "everything" are the likeliest."""
    trace = trace_of(
        MADE,
        *(
            Written(node=1, offset=place, data=b"1", **when(place + 2))
            for place in range(40)
        ),
        end=50,
    )
    (cut,) = cuts(trace)
    tried = [dict(tree.contents()) for tree in states(cut, 100, random.Random(1))]
    assert len(tried) == 100
    assert tried[:2] == [{}, {"a": b"1" * 40}]
