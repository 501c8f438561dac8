"""The example with a queue runs as it stands."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_queue.py"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-queue"),
    pytest.mark.timeout(300),
]


def test_orders_are_counted_by_city() -> None:
    """Published by Spark, read by Spark; each once, and the queue is empty."""
    done = subprocess.run(
        [sys.executable, EXAMPLE],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *("Bonn: 100", "Kiel: 100", "Ulm: 100"),
        "the queue is empty",
    ]
