"""An audit of made-up fleets, whose generator and truth share no code with it.

More of them: `QOS_SEEDS=100 pytest tests/spark/test_fleet.py`. See tests/fleet; the same
truth from `audit --follow`, a declarative pipeline and a cluster is in the tests of
these.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from fleets import NOW, Fleets, journals_in, make_fleets
from published import differences, rows, wrong_verdicts
from qos.audit import driver
from qos.audit.boot_runs import RUN
from qos.audit.driver import audit
from qos.audit.tables import Limits, suspicions
from qos.audit.tables.journal_coverage import Runs

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]


def test_an_audit_counts_and_judges_as_others_do(
    fleets: Fleets, audited_fleets: Path, spark: SparkSession, tmp_path: Path
) -> None:
    """DuckDB counts each table row for row; and verdicts are what the lines prove."""
    check(fleets, audited_fleets)
    for seed in range(1, int(os.environ.get("QOS_SEEDS", "1"))):
        others, out = make_fleets(tmp_path / f"{seed}", seed), tmp_path / f"out-{seed}"
        audit(spark, journals_in(others.journals), str(out), limits=Limits(now=NOW))
        check(others, out)


def _any_journal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Runs, "covers_in_each_journal", Runs.covers)


def _only_read_files(patch: pytest.MonkeyPatch) -> None:
    def named(spark: SparkSession, *_: object) -> DataFrame:
        return spark.createDataFrame([], RUN)

    patch.setattr(driver, "named_runs", named)


@pytest.mark.long
@pytest.mark.parametrize("mutant", [_any_journal, _only_read_files])
def test_an_audit_that_takes_one_journal_for_its_namesake_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None],
    fleets: Fleets,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With each of these mistakes an audit accuses where nothing went wrong."""
    mutant(monkeypatch)
    audit(spark, journals_in(fleets.journals), str(tmp_path), limits=Limits(now=NOW))
    accused = rows(tmp_path / "anomalies", ("kind", "sender", "msg_id"))
    assert not set(accused) <= set(fleets.faults)


def _no_components(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(suspicions, "_with_components", lambda rows, _devices: rows)


def _addresses_of_components(patch: pytest.MonkeyPatch) -> None:
    """A component that also speaks for addresses with a journal of their own."""

    def always(self: Runs, other: Runs, rows: DataFrame) -> DataFrame:
        known = rows.withColumn(other._its("is_node"), F.lit(None).cast("boolean"))
        return in_place_of(self, other, known)

    in_place_of = Runs.in_place_of
    patch.setattr(Runs, "in_place_of", always)


@pytest.mark.long
@pytest.mark.parametrize("mutant", [_no_components, _addresses_of_components])
def test_an_audit_that_takes_a_component_for_something_else_is_found(
    mutant: Callable[[pytest.MonkeyPatch], None],
    fleets: Fleets,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some of its verdicts are not what the lines prove."""
    mutant(monkeypatch)
    audit(spark, journals_in(fleets.journals), str(tmp_path), limits=Limits(now=NOW))
    assert wrong_verdicts(tmp_path, fleets.truth) != {}


def check(fleets: Fleets, out: Path) -> None:
    assert differences(out, fleets.recount) == {}
    accused = rows(out / "anomalies", ("kind", "sender", "msg_id"))
    # No accusation without a fault, whatever is missing.
    assert set(accused) <= set(fleets.faults)
    assert wrong_verdicts(out, fleets.truth) == {}
