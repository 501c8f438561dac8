"""Journals on another file system: what cannot be read there is a problem, the rest goes on.

The other file system is a view of a local folder (`viewfs`), which only Java knows. A file
whose checksum is wrong cannot be read by anybody, not even by root.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from frames import NOON, Lines, write_journal
from qos.audit import hadoop
from qos.audit.driver import audit
from qos.audit.follow import Follower
from qos.audit.new_files import files_since
from qos.audit.snapshot import snapshot
from qos.audit.tables import Limits

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

LIMITS = Limits(now=NOON + timedelta(days=1))
WHOLE = ("accepted", "offered", "received", "released", "delivered")
DAY = "date=2026-01-05"


@pytest.fixture
def far(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """The URI of the folder `j`, as Java sees it."""
    # Hadoop keeps the file systems by their names.
    name = f"far-{os.urandom(4).hex()}"
    key = f"fs.viewfs.mounttable.{name}.link./j"
    settings = cast(Any, spark.sparkContext)._jsc.hadoopConfiguration()
    settings.set(key, f"file://{tmp_path}/j")
    (tmp_path / "j").mkdir()
    yield f"viewfs://{name}/j"
    settings.unset(key)


def message(folder: Path, name: str, *, is_broken: bool = False) -> None:
    write_journal(folder, name, Lines(f"{name}.example").sent(*WHOLE, msg_id=name))
    if is_broken:
        checksums = folder / DAY / f".{name}-b-1.jsonl.crc"
        checksums.write_bytes(b"crc\0" + (512).to_bytes(4, "big") + b"none" * 8)


def problems(out: Path) -> dict[tuple[str, str], str]:
    """The problems with their reasons, by kind and name."""
    rows = snapshot(str(out))["problems"].to_pyarrow_table().to_pylist()
    return {
        (row["kind"], row["place"].rpartition("/")[2]): row["example"] for row in rows
    }


def messages(out: Path) -> list[str]:
    """The messages in the tables."""
    rows = snapshot(str(out))["deliveries"].to_pyarrow_table()
    return sorted(rows["msg_id"].to_pylist())


def batch(spark: SparkSession, journals: list[str], out: str) -> None:
    audit(spark, journals, out, limits=LIMITS)


def look(spark: SparkSession, journals: list[str], out: str) -> None:
    lateness = timedelta(days=7)
    Follower(spark, journals, out, limits=lambda: LIMITS, lateness=lateness).look()


@pytest.mark.long
@pytest.mark.parametrize("way", [batch, look])
def test_a_file_elsewhere_that_cannot_be_read_is_a_problem(
    way: Callable[[SparkSession, list[str], str], None],
    spark: SparkSession,
    far: str,
    tmp_path: Path,
) -> None:
    """Beside files of this machine, and again at the next audit; it ended the audit."""
    message(tmp_path / "j", "good")
    message(tmp_path / "j", "bad", is_broken=True)
    message(tmp_path / "here", "near")
    out = tmp_path / "out"
    for _ in range(2):
        way(spark, [far, str(tmp_path / "here"), f"{far}/gone"], str(out))
        assert messages(out) == ["good", "near"]
        told = problems(out)
        assert told["unread-file", "bad-b-1.jsonl"].startswith("Checksum error")
        assert "No such file" in told["unread-folder", "gone"]
        assert len(told) == 2


@pytest.mark.long
def test_a_file_elsewhere_that_is_removed_before_it_is_read_is_a_problem(
    spark: SparkSession, far: str, tmp_path: Path
) -> None:
    """A retention of theirs runs while the audit does."""
    message(tmp_path / "j", "good")
    message(tmp_path / "j", "late")

    def progress(step: str) -> None:
        if step.startswith("reading"):
            (tmp_path / "j" / DAY / "late-b-1.jsonl").unlink(missing_ok=True)

    out = tmp_path / "out"
    audit(spark, [far], str(out), limits=LIMITS, progress=progress)
    assert messages(out) == ["good"]
    assert list(problems(out)) == [("unread-file", "late-b-1.jsonl")]


def test_a_day_elsewhere_that_cannot_be_listed_is_an_entry(
    spark: SparkSession, far: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other days are listed; what Spark lacks is no problem of a folder."""
    message(tmp_path / "j", "good")
    (tmp_path / "j" / "date=2026-01-04").mkdir()
    files = hadoop.files

    def files_unless_denied(
        spark: SparkSession, folder: str
    ) -> Iterator[tuple[str, int, int]]:
        is_denied = folder.endswith("date=2026-01-04")
        return files(spark, f"{folder}/gone" if is_denied else folder)

    monkeypatch.setattr(hadoop, "files", files_unless_denied)
    found = {file.path: file for file in files_since(spark, [far], None)}
    assert sorted(file.problem or "" for file in found.values()) == [
        "",
        "unread-folder",
    ]
    assert "does not exist" in found[f"{far}/date=2026-01-04"].reason
    with pytest.raises(Py4JJavaError, match="No FileSystem for scheme"):
        files_since(spark, ["nothing://here/j"], None)
