"""The tables of the declarative pipeline have the comments of those of an audit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from frames import Lines, write_journal
from pipeline_project import described, make_project, run
from qos.audit import comments

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.xdist_group("spark-processes"),
    pytest.mark.timeout(600),
]

#: A pipeline has no audits.
NAMES = [name for name in comments.TABLES if name != "audits"]


def commented(
    fields: Sequence[dict[str, Any]], within: str = ""
) -> Iterator[tuple[str, str | None]]:
    """The columns and the fields of their structs, each with its comment."""
    for field in fields:
        name = f"{within}{field['name']}"
        yield name, field["metadata"].get("comment")
        kind = field["type"]
        while isinstance(kind, dict) and "elementType" in kind:
            kind = kind["elementType"]
        if isinstance(kind, dict):
            yield from commented(kind.get("fields", ()), f"{name}.")


def test_each_table_and_column_of_the_pipeline_has_its_comment_in_the_catalogue(
    tmp_path: Path,
) -> None:
    """They come from the list of which test_comments.py tests each entry."""
    journals = tmp_path / "journals"
    write_journal(journals, "one", Lines().sent("accepted", "offered"))
    project = make_project(tmp_path / "project", [str(journals)], tmp_path / "storage")
    run(project)
    found = json.loads(described(project, NAMES))
    for name, (description, fields) in found.items():
        assert description == comments.TABLES[name]
        for column, comment in commented(fields):
            assert comment, (name, column)
            assert comment == comments.of_column(name, column)
