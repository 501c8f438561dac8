"""`synth` makes valid journals with exactly the announced anomalies."""

import json
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.synth import Plan, synthesise
from qos.journal.schema import parse_line, render_line


def lines_of(folder: Path) -> list[str]:
    return [
        line
        for path in sorted(folder.glob("date=*/*.jsonl"))
        for line in path.read_text().splitlines()
    ]


def test_each_line_is_as_the_writer_would_write_it(tmp_path: Path) -> None:
    """They are put together as text, so this has to be checked."""
    made = synthesise(Plan(devices=60, messages=400), tmp_path, processes=1)
    lines = lines_of(tmp_path)
    assert len(lines) == made.lines
    assert made.files == len(list(tmp_path.glob("date=*/*.jsonl")))
    for line in lines:
        assert render_line(parse_line(line)) == line


def test_each_boot_counts_its_lines_without_a_hole(tmp_path: Path) -> None:
    """And in the order of its own clock."""
    synthesise(Plan(devices=3, messages=500, days=2), tmp_path, processes=1)
    boots: dict[object, list[tuple[object, object]]] = {}
    for line in lines_of(tmp_path):
        fields = parse_line(line)
        boots.setdefault(fields["boot"], []).append((fields["seq"], fields["at"]))
    assert len(boots) > 3
    for counted in boots.values():
        counted.sort()
        assert [seq for seq, _ in counted] == list(range(1, len(counted) + 1))
        times = [str(at) for _, at in counted]
        assert times == sorted(times)


def test_no_node_has_two_boots_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the device of a message is not clear, and nothing is proved."""
    monkeypatch.setattr("benchmarks.synth._MESSAGES_A_SLICE", 100)
    plan = Plan(devices=9, messages=1200, lost=40, stuck=9, days=2)
    synthesise(plan, tmp_path, processes=1)
    boots: dict[object, tuple[object, str, str]] = {}
    for line in lines_of(tmp_path):
        fields = parse_line(line)
        boot, at = fields["boot"], str(fields["at"])
        _, first, last = boots.get(boot, (None, at, at))
        boots[boot] = fields["node"], min(first, at), max(last, at)
    assert len(boots) == 14 * 6 * 2
    ends: dict[object, str] = {}
    for node, first, last in sorted(boots.values(), key=lambda boot: boot[1]):
        assert ends.get(node, "") < first
        ends[node] = last


def test_each_boot_counts_its_messages_and_is_closed(tmp_path: Path) -> None:
    """As a real one does: the counts of its windows are those of its lines."""
    plan = Plan(devices=3, messages=300, lost=2, hours=2)
    synthesise(plan, tmp_path, processes=1)
    boots: dict[object, list[dict[str, str | int]]] = {}
    for line in lines_of(tmp_path):
        fields = parse_line(line)
        boots.setdefault(fields["boot"], []).append(fields)
    received = 0
    for lines in boots.values():
        lines.sort(key=lambda fields: fields["seq"])
        events = [str(fields["event"]) for fields in lines]
        assert (events[0], events[-1]) == ("opened", "closed")
        counted = [fields for fields in lines if fields["event"] == "counted"]
        last = max(str(fields["since"]) for fields in counted)
        end = next(
            number for number, fields in enumerate(lines) if fields.get("since") == last
        )
        for name, role, event in (
            ("sent", "sender", "accepted"),
            ("received", "receiver", "handed-over"),
        ):
            seen = [(f["role"], f["event"]) for f in lines[:end]].count((role, event))
            assert sum(int(fields[name]) for fields in counted) == seen
            received += seen * (name == "received")
        windows = {str(fields["since"]) for fields in counted}
        assert len(windows) >= (2 * 3600) / 300
    assert received > 250


def test_the_seed_decides_everything(tmp_path: Path) -> None:
    """However many processes share the work."""
    plan = Plan(devices=60, messages=200, lost=1, stuck=1, seed=5)
    synthesise(plan, tmp_path / "one", processes=1)
    for processes in (1, 2):
        again = tmp_path / str(processes)
        synthesise(plan, again, processes=processes)
        assert lines_of(tmp_path / "one") == lines_of(again), processes
    other = Plan(devices=60, messages=200, lost=1, stuck=1, seed=6)
    synthesise(other, tmp_path / "other", processes=1)
    assert lines_of(tmp_path / "other") != lines_of(again)


def test_what_is_expected_is_written_down(tmp_path: Path) -> None:
    """Beside the folders of the journals, so that an audit does not see it."""
    plan = Plan(devices=5, messages=30, lost=2, duplicated=3, stuck=1)
    made = synthesise(plan, tmp_path, processes=1)
    expected = json.loads((tmp_path / "expected.json").read_text())
    kinds = Counter(each["kind"] for each in expected["anomalies"])
    assert kinds == {"lost": 2, "duplicated": 3, "stuck": 1}
    assert len({each["msg_id"] for each in expected["anomalies"]}) == 6
    assert expected["lines"] == made.lines


def test_a_message_that_is_lost_has_no_hand_over(tmp_path: Path) -> None:
    """And one that was duplicated has two."""
    plan = Plan(devices=5, messages=100, lost=2, duplicated=2, stuck=2)
    made = synthesise(plan, tmp_path, processes=1)
    hand_overs = Counter(
        fields["msg_id"]
        for fields in map(parse_line, lines_of(tmp_path))
        if fields["event"] == "handed-over"
    )
    for each in made.anomalies:
        wanted = {"lost": 0, "duplicated": 2, "stuck": 0}[each.kind]
        assert hand_overs[each.msg_id] == wanted


def test_nothing_can_be_asked_for_that_cannot_be() -> None:
    """More anomalies than messages, or nobody to send them."""
    with pytest.raises(ValueError, match="more anomalies than messages"):
        Plan(devices=1, messages=10, lost=5, duplicated=5, stuck=1)
    for devices, days, messages in ((0, 1, 1), (1, 0, 1), (1, 1, -1)):
        with pytest.raises(ValueError, match="there must be a device and a day"):
            Plan(devices=devices, days=days, messages=messages)
    for hours in (0, 25):
        with pytest.raises(ValueError, match="a day has from 1 to 24 hours"):
            Plan(devices=1, messages=1, hours=hours)


def test_days_and_files_are_those_of_the_lines(tmp_path: Path) -> None:
    """A file is in the folder of its first line."""
    plan = Plan(devices=2, messages=300, days=2, first_day=date(2026, 2, 28))
    synthesise(plan, tmp_path, processes=1)
    days = {path.name for path in tmp_path.glob("date=*")}
    assert {"date=2026-02-28", "date=2026-03-01"} <= days
    for path in tmp_path.glob("date=*/*.jsonl"):
        first = parse_line(path.read_text().partition("\n")[0])
        assert path.parent.name == f"date={str(first['at'])[:10]}"


@pytest.mark.parametrize("hours", [1, 3])
def test_all_begins_in_the_hours_that_are_asked_for(hours: int, tmp_path: Path) -> None:
    """Each hour has files of its own in the tables: a test does not need so many."""
    plan = Plan(devices=9, messages=500, days=2, hours=hours)
    synthesise(plan, tmp_path, processes=1)
    begun = Counter(
        str(fields["at"])[:13]
        for fields in map(parse_line, lines_of(tmp_path))
        if fields["event"] == "accepted" and fields["role"] == "sender"
    )
    wanted = {f"2026-01-0{day}T{hour:02}" for day in (5, 6) for hour in range(hours)}
    assert begun.keys() == wanted


def test_synth_says_what_it_has_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It needs no Spark."""
    # So few devices take no processes: to start them takes longer than all the rest.
    words = ["--messages", "50", "--lost", "1", "--devices", "5"]
    assert main(["synth", "--out", str(tmp_path / "new"), *words]) == 0
    err = capsys.readouterr().err
    assert "50 messages" in err
    assert "1 anomalies" in err
    assert (tmp_path / "new" / "expected.json").exists()
