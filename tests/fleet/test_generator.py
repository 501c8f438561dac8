"""The made-up fleets, and the truth that can be known of them; without Spark.

`tests/spark/test_fleet.py` compares the verdicts of an audit for the same fleets. To
run more of them: `QOS_SEEDS=100 pytest tests/fleet tests/spark/test_fleet.py`.
"""

from __future__ import annotations

import ast
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from generator import FAULTS, Fleet, Plan, fleet
from layout import Layout, lay_out
from oracle import Verdict, verdicts
from recount import TABLES, Recount

HERE = Path(__file__).parent

#: The modules of this folder, without its tests.
OURS = {
    *("generator", "items", "layout", "nodes", "oracle", "published", "recount"),
    "traffic",
}

REASONS = {
    *("no-journal", "began-later", "not-closed", "hole", "journal-off", "clock"),
    *("newer-version", "which-device", "which-journal"),
}


def seeds() -> range:
    return range(int(os.environ.get("QOS_SEEDS", "3")))


def judged(made: Fleet, layout: Layout) -> dict[tuple[str, str], Verdict]:
    found = verdicts(layout.given, layout.newer, layout.named, now=made.now)
    return {(key.sender, key.msg_id): verdict for key, verdict in found.items()}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def test_neither_the_generator_nor_the_oracle_imports_the_product() -> None:
    """With shared code both could be wrong in the same way."""
    paths = [path for path in HERE.glob("*.py") if not path.name.startswith("test_")]
    assert {path.stem for path in paths} == OURS
    used = {name for path in paths for name in imports(path)}
    assert used - OURS - sys.stdlib_module_names == {"deltalake", "duckdb"}


@pytest.mark.parametrize("seed", seeds())
def test_nothing_can_be_accused_where_nothing_is_wrong(seed: int) -> None:
    """The rules themselves.

    An oracle with false accusations would excuse an audit with the same.
    """
    made = fleet(Plan(seed))
    layout = lay_out(made, seed)
    assert made.faults == set()
    assert layout.missing > 0
    found = judged(made, layout)
    assert all(v.reasons for v in found.values() if v.verdict == "unproven")
    assert {
        key: v for key, v in found.items() if v.verdict not in {"ok", "unproven"}
    } == {}
    assert Counter(v.verdict for v in found.values())["ok"] > 50


@pytest.mark.parametrize("seed", seeds())
def test_only_what_really_went_wrong_can_be_accused(seed: int) -> None:
    """Whatever part of the journals is missing.

    An accusation is one of the planted faults.
    """
    made = fleet(Plan(seed, faults=4))
    found = judged(made, lay_out(made, seed))
    true = {(fault.sender, fault.msg_id): fault.kind for fault in made.faults}
    for key, verdict in found.items():
        if verdict.verdict not in {"ok", "unproven"}:
            assert verdict.verdict == true.get(key), (key, verdict)


def test_with_all_lines_each_fault_is_proved_somewhere() -> None:
    """Otherwise an oracle that never accuses would pass."""
    proved: Counter[str] = Counter()
    for seed in range(3):
        made = fleet(Plan(seed, faults=8))
        found = judged(made, lay_out(made, seed, hostile=False))
        proved += Counter(verdict.verdict for verdict in found.values())
    assert all(proved[fault] > 3 for fault in FAULTS), proved


def test_each_reason_is_there_in_some_fleet() -> None:
    """A reason that never occurs is never compared."""
    reasons: set[str] = set()
    for seed in range(4):
        made = fleet(Plan(seed, messages=300, faults=25))
        found = judged(made, lay_out(made, seed)).values()
        reasons |= {reason for verdict in found for reason in verdict.reasons}
    assert reasons == REASONS


@pytest.mark.parametrize("seed", seeds())
def test_another_reader_finds_exactly_the_lines_that_were_given(
    seed: int, tmp_path: Path
) -> None:
    """DuckDB reads the files, and agrees with the layout about their lines."""
    made = fleet(Plan(seed, faults=2))
    layout = lay_out(made, seed)
    layout.write(tmp_path)
    recount = Recount(tmp_path, version=2)
    assert recount.lines() == {(line.boot, line.seq) for line in layout.given}
    assert all(recount.rows(name) for name in set(TABLES) - {"refusals"})
    found = verdicts(layout.given, layout.newer, layout.named, now=made.now)
    assert recount.rows("deliveries").total() == len(found)


def test_the_same_seed_makes_the_same_files() -> None:
    """A fleet that failed can be examined again."""
    one, other = (lay_out(fleet(Plan(7, faults=1)), 7) for _ in range(2))
    assert one.files == other.files
    assert one.files != lay_out(fleet(Plan(8, faults=1)), 8).files
