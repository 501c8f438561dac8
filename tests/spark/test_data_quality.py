"""The rules for the journals: each has a row, whether it was broken or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from qos.audit.data_quality import data_quality
from qos.audit.follow_problems import LATE_LINE
from qos.audit.read import Problem
from qos.audit.rules import RULES
from qos.audit.snapshot import snapshot

if TYPE_CHECKING:
    from tests.spark.conftest import Audited

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]


def test_each_kind_of_problem_breaks_a_rule() -> None:
    """And each rule is broken by one."""
    assert RULES.keys() == {*(problem.value for problem in Problem), LATE_LINE}


def test_the_rows_of_a_rule_are_added_up(spark: SparkSession) -> None:
    """One that no problem breaks holds; a problem without a rule is seen, too."""
    rows = [
        ("torn-line", "b.jsonl", 3, "{"),
        ("torn-line", "a.jsonl", 2, "[{"),
        ("unheard-of", "a.jsonl", 1, None),
    ]
    problems = spark.createDataFrame(
        rows, "kind string, place string, count long, example string"
    )
    found = {
        row["rule"]: tuple(row[name] for name in ("success", "count", "places"))
        for row in data_quality(problems).collect()
    }
    assert found.keys() == {*RULES, "unheard-of"}
    assert found["torn-line"] == (False, 5, 2)
    assert found["unheard-of"] == (False, 1, 1)
    assert found["bad-line"] == (True, 0, 0)


def test_an_audit_writes_the_rules_and_what_breaks_them(audited: Audited) -> None:
    """As the summary and the metrics have it."""
    rows = snapshot(str(audited.out))["data_quality"].to_pyarrow_table().to_pylist()
    assert {row["rule"]: row["meaning"] for row in rows} == RULES
    broken = {row["rule"]: row["count"] for row in rows if not row["success"]}
    assert broken == audited.summary["problems"] == {"foreign-file": 1}
    assert all(row["count"] == 0 for row in rows if row["success"])
    metrics = (audited.out / "metrics.prom").read_text()
    for row in rows:
        line = f'xmpp_qos_audit_problems{{kind="{row["rule"]}"}} {row["count"]}\n'
        assert line in metrics
