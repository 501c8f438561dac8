"""The tables as a declarative pipeline, run by Spark's own command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import qos.pipeline
from parquet import rows_of
from qos.pipeline.driver import TABLES

if TYPE_CHECKING:
    from tests.spark.conftest import Audited

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-processes"),
    pytest.mark.timeout(600),
]

FOLDER = Path(qos.pipeline.__path__[0]) / "declarative"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The folder as a user has it, who has copied it and set what has to be set."""
    shutil.copytree(FOLDER, tmp_path / "project")
    spec = tmp_path / "project" / "spark-pipeline.yml"
    text = spec.read_text()
    for before, after in (
        ("file:///var/lib/xmpp-qos/pipeline", f"file://{tmp_path}/storage"),
        ("/var/lib/xmpp-qos/journals", str(tmp_path / "journals")),
    ):
        assert before in text
        text = text.replace(before, after)
    spec.write_text(text)
    return tmp_path / "project"


def run(project: Path, **settings: str) -> None:
    """What a platform team would have a scheduler do."""
    spec = project / "spark-pipeline.yml"
    text = spec.read_text()
    for name, value in settings.items():
        text = text.replace(f'{name}: ""', f'{name}: "{value}"')
    again = project / "again.yml"
    again.write_text(text)
    done = subprocess.run(
        (
            Path(sys.executable).with_name("spark-pipelines"),
            *("run", "--spec", again, "--remote", "local[2]"),
        ),
        cwd=project,
        env={
            **os.environ,
            "SPARK_CONF_DIR": str(project),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            # Else the port is always the same.
            "SPARK_TESTING": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_runs_of_the_pipeline_come_to_what_an_audit_comes_to(
    project: Path, tmp_path: Path, audited: Audited
) -> None:
    """With new journals in between: they are taken in, and none of the old ones twice."""
    journals = tmp_path / "journals"
    (day,) = audited.journals.glob("date=*")
    paths = sorted(day.iterdir())
    (journals / day.name).mkdir(parents=True)
    for path in paths[::2]:
        shutil.copy(path, journals / day.name)
    warehouse = project / "spark-warehouse"
    run(project, now=f"{day.name.removeprefix('date=')}T00:00:00Z")
    early = rows_of(warehouse / "anomalies")
    assert not any("'kind': 'stuck'" in row for row in early)
    for path in paths[1::2]:
        shutil.copy(path, journals / day.name)
    run(project)
    # Of when it was judged; a pipeline knows of no earlier verdict.
    without = ("judged_at", "found_at", "history")
    for name in TABLES:
        assert rows_of(warehouse / name, without) == rows_of(
            audited.out / name, without
        ), name
    assert len(rows_of(warehouse / "anomalies")) == 5
    problems = rows_of(warehouse / "problems")
    assert problems.total() == 1
    # The same line, in a copy.
    (problem,) = problems
    expected = Counter([problem.replace(str(journals), str(audited.journals))])
    assert rows_of(audited.out / "problems") == expected
