"""Each table and column has a comment, which Delta's schema and the guide have alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from qos.audit import comments
from qos.audit.delta_schema import fields_of
from qos.audit.snapshot import spark_frame
from tables_page import MARK, made

if TYPE_CHECKING:
    from tests.spark.conftest import Audited

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def tables(audited: Audited) -> dict[str, DeltaTable]:
    return {name: DeltaTable(audited.out / name) for name in comments.TABLES}


def named(kind: Any, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """All fields of a type, with those of the structs in it."""
    if isinstance(kind, dict):
        for field in kind.get("fields", ()):
            yield f"{name}{field['name']}", field
            yield from named(field["type"], f"{name}{field['name']}.")
        yield from named(kind.get("elementType"), name)


def test_each_table_and_each_column_has_its_comment_in_the_schema_of_delta(
    tables: dict[str, DeltaTable], spark: SparkSession
) -> None:
    """And the parts of a struct; every tool that reads Delta shows them."""
    for name, table in tables.items():
        assert table.metadata().description.startswith(comments.TABLES[name])
        columns = dict(named({"fields": fields_of(table.schema())}, ""))
        without = [
            column
            for column, field in columns.items()
            if not field["metadata"].get("comment")
        ]
        assert not without, name
    frame = spark_frame(spark, tables["routes_hourly"])
    assert "115" not in frame.schema["latency_counts"].metadata["comment"]
    assert "entry 101" in " ".join(
        frame.schema["latency_counts"].metadata["comment"].lower().split()
    )


def test_no_comment_is_of_a_column_that_no_table_has(
    tables: dict[str, DeltaTable],
) -> None:
    """Such a comment would be of a former version."""
    used = {
        column.removeprefix("evidence.")
        for table in tables.values()
        for column, _ in named({"fields": fields_of(table.schema())}, "")
    }
    assert used == set(comments.COLUMNS)


def test_a_word_means_the_same_in_each_table(tables: dict[str, DeltaTable]) -> None:
    """Whoever joins two tables joins columns of the same name."""
    meanings = defaultdict(set)
    for name, table in tables.items():
        for field in fields_of(table.schema()):
            meanings[field["name"]].add(comments.of_column(name, field["name"]))
    for word in ("condition", "reason", "real_outcome", "outcome", "ended_at"):
        assert len(meanings[word]) == 1, word
    # What is one thing in a line of the journal has no second name.
    assert "ended" not in meanings


def test_the_page_of_the_guide_is_made_from_the_comments(
    tables: dict[str, DeltaTable], tmp_path: Path
) -> None:
    """If it is not, put the file that this test has made in its place."""
    head, mark, _ = PAGE.read_text().partition(MARK)
    page = f"{head}{mark}{made({name: t.schema() for name, t in tables.items()})}\n"
    path = tmp_path / "tables.md"
    path.write_text(page)
    # `is True`: pytest's comparison of two long texts takes its time.
    assert (PAGE.read_text() == page) is True, f"cp {path} {PAGE}"
