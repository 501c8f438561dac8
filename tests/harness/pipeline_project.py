"""The folder of a user who has copied the declarative pipeline and filled in its settings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import qos.audit

__all__ = ["described", "make_project", "run"]

FOLDER = Path(qos.audit.__path__[0]) / "declarative"

#: Prints the table, the columns and the comments of the tables that it is told.
_DESCRIBE = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
found = {}
for name in sys.argv[1:]:
    table = spark.catalog.getTable(name)
    found[name] = [table.description, spark.table(name).schema.jsonValue()["fields"]]
print(json.dumps(found))
"""


def make_project(folder: Path, journals: Sequence[str], storage: Path) -> Path:
    """Copy the pipeline to this folder, and name these folders in it."""
    shutil.copytree(FOLDER, folder)
    spec = folder / "spark-pipeline.yml"
    text = spec.read_text()
    for before, after in (
        ("file:///var/lib/xmpp-qos/pipeline", f"file://{storage}"),
        ("/var/lib/xmpp-qos/journals", ",".join(journals)),
    ):
        assert before in text
        text = text.replace(before, after)
    spec.write_text(text)
    return folder


def run(project: Path, **settings: str) -> None:
    """Run it as the scheduler of a platform team would."""
    spec = project / "spark-pipeline.yml"
    text = spec.read_text()
    for name, value in settings.items():
        text = text.replace(f'{name}: ""', f'{name}: "{value}"')
    again = project / "again.yml"
    again.write_text(text)
    command = ("run", "--spec", str(again), "--remote", "local[2]")
    _finished(
        project,
        [str(Path(sys.executable).with_name("spark-pipelines")), *command],
        # Otherwise the port is always the same.
        SPARK_TESTING="1",
    )


def described(project: Path, names: Sequence[str]) -> str:
    """The tables of this name in the catalogue, as JSON.

    A list for each name: what the table is, and its columns as Spark has them.
    """
    options = "--master local[1] pyspark-shell"
    command = [sys.executable, "-P", "-c", _DESCRIBE, *names]
    return _finished(project, command, PYSPARK_SUBMIT_ARGS=options)


def _finished(project: Path, command: Sequence[str], **variables: str) -> str:
    """Run a command that must end with 0, and return what it prints."""
    done = subprocess.run(
        command,
        cwd=project,
        env={
            **os.environ,
            "SPARK_CONF_DIR": str(project),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **variables,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
