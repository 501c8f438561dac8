"""`make depth` measures queues of any depth; here of a few items."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).parents[1] / "harness"


@pytest.mark.parametrize("delay", ["0", "3600"])
def test_each_depth_has_its_row(delay: str) -> None:
    """With a figure in each column, and the items that are there."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.depth", "--delay", delay, "0", "600"],
        env={"PYTHONPATH": str(HARNESS)},
        capture_output=True,
        text=True,
        check=True,
    )
    head, _, *rows = done.stdout.splitlines()
    assert [row.split("|")[1].strip() for row in rows] == ["0", "600"]
    for row in rows:
        cells = [cell.strip().replace(",", "") for cell in row.split("|")[1:-1]]
        assert len(cells) == head.count("|") - 1
        assert all(float(cell) >= 0 for cell in cells)
