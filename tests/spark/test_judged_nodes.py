"""The nodes of each audited day, kept from one audit to the next."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from qos.audit.former_rows import Missing
from qos.audit.judged_nodes import JudgedNodes
from qos.audit.named_journals import node_in_name
from qos.audit.new_files import NewFile

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

FIFTH, SIXTH, SEVENTH = (date(2026, 1, day) for day in (5, 6, 7))


def file_of(node: str, day: str) -> NewFile:
    return NewFile(f"/j/date={day}/{node}-b-1.jsonl", day, None, 1)


FILES = [
    *(file_of("a@x%2F1", f"{day}") for day in (FIFTH, SIXTH)),
    file_of("b@x%2F1", f"{FIFTH}"),
    # There is no such day, and the folder of a journal itself has none.
    *(file_of("c@x%2F1", day) for day in ("2026-13-45", "")),
]

B_IS_MISSING = [Missing("b@x/1", FIFTH, FIFTH, 1)]


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("a@x%2F1-b0-1.jsonl", "a@x/1"),
        ("q.x-b0items-12.jsonl.zst", "q.x"),
        ("a-b@x-b0-1.2.jsonl.gz", "a-b@x"),
        ("notes.txt", None),
        ("a@x.jsonl", None),
    ],
)
def test_the_node_of_a_file_is_in_its_name(name: str, node: str | None) -> None:
    """Also of a file of items, which a queue service writes, and of a joined one."""
    assert node_in_name(f"/j/date=2026-01-05/{name}") == node


def test_a_node_is_missing_on_the_days_on_which_it_had_a_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    """And it is until it comes back, however many audits there are meanwhile."""
    out = str(tmp_path)
    nodes = JudgedNodes(spark, out, 0)
    assert nodes.missing(FILES, FIFTH, SEVENTH) == []
    nodes.write(FILES, FIFTH, SIXTH, None)
    nodes.remove_former()
    only_a = FILES[:2]
    for number in (1, 2):
        nodes = JudgedNodes(spark, out, number)
        assert nodes.missing(FILES, FIFTH, SEVENTH) == []
        assert nodes.missing(only_a, FIFTH, SEVENTH) == B_IS_MISSING
        assert nodes.missing(only_a, SIXTH, SEVENTH) == []
        assert nodes.missing([], FIFTH, SEVENTH) == [
            Missing("a@x/1", FIFTH, SIXTH, 2),
            *B_IS_MISSING,
        ]
        nodes.write(only_a, FIFTH, SIXTH, None)
        nodes.remove_former()
    assert len(list(tmp_path.glob(".audit/judged-*"))) == 1


def test_what_an_audit_has_kept_that_was_killed_is_not_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its rows were taken back."""
    out = str(tmp_path)
    first = JudgedNodes(spark, out, 0)
    first.write(FILES[:2], FIFTH, SIXTH, None)
    killed = JudgedNodes(spark, out, 1)
    killed.write(FILES, FIFTH, SIXTH, None)
    assert JudgedNodes(spark, out, 1).missing(FILES[:2], FIFTH, SIXTH) == []
    # An audit that ended, such as that of a follower, need not have kept any.
    assert JudgedNodes(spark, out, 9).missing(FILES[:2], FIFTH, SIXTH) == B_IS_MISSING


def test_nodes_of_days_that_are_not_kept_are_forgotten(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Their rows are gone as well."""
    out = str(tmp_path)
    JudgedNodes(spark, out, 0).write(FILES, FIFTH, SIXTH, SIXTH)
    assert JudgedNodes(spark, out, 1).missing([], FIFTH, SEVENTH) == [
        Missing("a@x/1", SIXTH, SIXTH, 1)
    ]
