"""The example with a queue runs as it stands."""

import contextlib
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from qos.spark import session
from qos.spark.session import spark_session

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark_queue.py"

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@contextlib.contextmanager
def of_this_thread(*args: Any, **options: Any) -> Iterator[SparkSession]:
    """The example has its session in a thread, and so has to begin it there.

    Spark asks for a format the session of the thread, and no other.
    """
    with spark_session(*args, **options) as spark:
        java = cast(Any, spark)
        of = java._get_j_spark_session_class(java._jvm)
        of.setActiveSession(java._jsparkSession)
        yield spark


PRINTED = ["Bonn: 100", "Kiel: 100", "Ulm: 100", "the queue is empty"]


@pytest.mark.long
@pytest.mark.xdist_group("spark")
def test_orders_are_counted_by_city(
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Published by Spark, read by Spark; each once, and the queue is empty.

    In the session that is there: to start another takes as long as all the rest.
    """
    monkeypatch.setattr(session, "spark_session", of_this_thread)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == PRINTED
    assert spark.range(1).count() == 1


@pytest.mark.long
@pytest.mark.xdist_group("spark-queue")
def test_orders_are_counted_by_city_in_a_session_of_its_own() -> None:
    """As a reader of the guide runs it."""
    done = subprocess.run(
        [sys.executable, EXAMPLE],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == PRINTED
