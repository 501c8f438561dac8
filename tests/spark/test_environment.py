"""An audit is the same in any folder, any language and any environment."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from benchmarks.synth import Plan, synthesise
from qos.audit import store
from qos.spark.environment import java_environment, without_connect

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]

_COMMAND = (sys.executable, "-P", "-c", "import sys, qos.cli; sys.exit(qos.cli.main())")

_CONNECT = {
    "SPARK_REMOTE": "sc://localhost",
    "SPARK_API_MODE": "connect",
    "SPARK_CONNECT_MODE": "1",
}


def test_java_starts_with_the_same_language_and_path_for_every_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Afterwards the environment is the user's again."""
    monkeypatch.setenv("LC_ALL", "ar_EG.UTF-8")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "jupyter")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    before = dict(os.environ)
    with java_environment():
        assert os.environ["LC_ALL"] == "C.UTF-8"
        assert os.environ["PYTHONSAFEPATH"] == "1"
        assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert dict(os.environ) == before


def test_spark_connect_is_set_aside_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its sessions have no Java here, which an audit needs."""
    for name, value in _CONNECT.items():
        monkeypatch.setenv(name, value)
    with without_connect():
        assert not _CONNECT.keys() & os.environ.keys()
    assert _CONNECT.items() <= os.environ.items()
    (record,) = caplog.records
    assert ", ".join(_CONNECT) in record.getMessage()


def test_settings_that_ask_for_no_spark_connect_need_no_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark's own scripts set such a value."""
    monkeypatch.setenv("SPARK_CONNECT_MODE", "0")
    monkeypatch.setenv("SPARK_API_MODE", "classic")
    with without_connect():
        assert "SPARK_CONNECT_MODE" not in os.environ
    assert not caplog.records


def test_workers_import_nothing_from_the_folder_in_which_they_were_started(
    spark: SparkSession,
) -> None:
    """Before, a `json.py` there ran in each of them."""

    def paths(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            looked_at = {os.path.realpath(path) for path in sys.path}
            is_here = os.path.realpath(os.getcwd()) in looked_at
            yield pa.record_batch({"here": pa.array([is_here])})

    rows = spark.range(1).mapInArrow(paths, "here boolean").collect()
    assert [row["here"] for row in rows] == [False]


def test_names_of_files_with_digits_of_another_language_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Tables have them that were written before; their logs quote such names."""
    locale = cast(Any, spark)._jvm.java.util.Locale
    before = locale.getDefault()
    day = date(2026, 1, 5)
    rows = spark.createDataFrame([(day, 1)], "date date, hour int")
    locale.setDefault(locale.forLanguageTag("ar-EG-u-nu-arab"))
    try:
        store.replace_days(rows, str(tmp_path), day, day)
    finally:
        locale.setDefault(before)
    assert not all(path.name.isascii() for path in tmp_path.rglob("part-*"))
    assert store.read_table(rows, str(tmp_path)).collect() == [(day, 1)]


@pytest.mark.long
def test_an_audit_of_zipped_journals_is_the_same_from_any_folder_in_any_language(
    tmp_path: Path, spark_as_it_comes: dict[str, str]
) -> None:
    """Everything at once that has ended an audit, or has run in it."""
    journals = tmp_path / "journals"
    plan = Plan(devices=4, messages=30, lost=1, duplicated=0, stuck=0, days=1, hours=1)
    synthesise(plan, journals, processes=1)
    for file in list(journals.rglob("*.jsonl")):
        Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    here = tmp_path / "here"
    here.mkdir()
    for name in ("json", "pandas", "queue", "types"):
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    options = spark_as_it_comes["JAVA_TOOL_OPTIONS"]
    finished = subprocess.run(
        (*_COMMAND, "audit", str(journals), "--out", "../ü", "--json"),
        cwd=here,
        env={
            **spark_as_it_comes,
            **_CONNECT,
            "LC_ALL": "C",
            "JAVA_TOOL_OPTIONS": f"{options} -Duser.language=ar -Duser.country=EG",
            "PYSPARK_DRIVER_PYTHON": "jupyter",
            "MPLBACKEND": "of_a_notebook",
        },
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert finished.returncode == 1, finished.stderr
    assert json.loads(finished.stdout)["anomalies"] == {"lost": 1}
    assert not (tmp_path / "ran").exists()
    assert "SPARK_REMOTE" in finished.stderr
    assert "MPLBACKEND" in finished.stderr
    names = [path.name for path in (tmp_path / "ü").rglob("part-*")]
    assert names
    assert all(name.isascii() for name in names)
