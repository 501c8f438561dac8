"""A local path is local, whatever Hadoop takes for its default file system.

An edge node of a cluster has `fs.defaultFS=hdfs://…`: there Spark looks for `/journals`
in the cluster, and Python on this machine.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from frames import NOON, Lines, write_journal
from qos.audit import hadoop, store
from qos.audit.audits import Audits
from qos.audit.follow_lock import check_options
from qos.audit.journals import tied_folders, with_folder
from qos.audit.locations import delta_uri, for_people, local_path, whole_url
from qos.audit.read import read_these, stream_lines
from qos.audit.snapshot import snapshot, spark_frame
from qos.audit.staged_journals import stage
from qos.cli import main
from qos.cli.audit_folders import journals_of, out_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

DAY = NOON.date()
WHOLE = ("accepted", "offered", "received", "released", "delivered")

#: No such file system is installed: whoever looks there gets an error at once.
ELSEWHERE = "elsewhere://cluster:8020"


@pytest.fixture
def elsewhere(spark: SparkSession) -> Iterator[None]:
    """A default file system that is not of this machine."""
    settings = cast(Any, spark.sparkContext)._jsc.hadoopConfiguration()
    before = settings.get("fs.defaultFS")
    settings.set("fs.defaultFS", ELSEWHERE)
    yield
    settings.set("fs.defaultFS", before)


def test_a_path_becomes_a_whole_url_once() -> None:
    """For Spark, Hadoop, Python and deltalake it is the same folder, by any name."""
    for name in ("/a b/50% ü:{x}", "file:/a b/50% ü:{x}", "file:///a b/50% ü:{x}"):
        url = whole_url(name)
        assert url == whole_url(url) == "file:///a b/50% ü:{x}"
        path = "/a b/50% ü:{x}"
        assert (str(local_path(url)), delta_uri(url), for_people(url)) == (path,) * 3
    assert whole_url("x/y") == f"file://{Path.cwd()}/x/y"
    for url in ("hdfs:///a", "s3a://bucket/a"):
        assert whole_url(url) == for_people(url) == url
    assert with_folder("/a", whole_url) == "file:///a"
    tied = with_folder("a@x/1=/a", whole_url)
    assert tied == with_folder(tied, whole_url) == "a@x/1=file:///a"
    folders, by_node = tied_folders([tied, "hdfs:///b"])
    assert folders == ["file:///a", "hdfs:///b"]
    assert by_node.node_of("file:///a/date=2026-01-05/x.jsonl") == "a@x/1"


def test_the_command_makes_whole_urls_of_all_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each way to write a local folder, checked in the same way."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "j" / "date=2026-01-05").mkdir(parents=True)
    journal = f"file://{tmp_path}/j"
    for name in ("j", "./j", f"{tmp_path}/j", journal, f"file:{tmp_path}/j", "j/../j"):
        given = Namespace(journals=[name], out=name, follow=False)
        assert journals_of(given) == [journal]
        assert out_of(given) == journal
        given.journals = [f"a@x/1={name}"]
        assert journals_of(given) == [f"a@x/1={journal}"]
    given.journals = ["a@x/1=hdfs:///j", "s3a://bucket/j"]
    assert journals_of(given) == given.journals


@pytest.mark.usefixtures("elsewhere")
def test_tables_and_own_data_are_on_this_machine(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Written, listed, read and removed by Java, by Python and by deltalake."""
    out = f"file://{tmp_path}/out {{1}}, 50"
    rows = spark.createDataFrame([(DAY, 1, "a")], "date date, hour int, name string")
    audits = Audits(spark, out)
    audits.recover()
    store.replace_days(rows, f"{out}/refusals", DAY, DAY)
    audits.record(DAY, DAY)
    assert store.read_table(rows, f"{out}/refusals").collect() == rows.collect()
    for name in (out, for_people(out)):
        tables = snapshot(name)
        assert spark_frame(spark, tables["refusals"]).collect() == rows.collect()
    assert check_options(spark, out, ["/a"], timedelta(days=7)) == ["file:///a"]
    assert check_options(spark, out, ["file:///a"], timedelta(days=7)) == ["file:///a"]
    assert sorted(hadoop.folders(spark, out)) == [".follow", "audits", "refusals"]
    assert "_SUCCESS" in hadoop.children(spark, f"{out}/.follow/options")
    hadoop.remove(spark, f"{out}/refusals")
    assert not (Path(for_people(out)) / "refusals").exists()


@pytest.mark.usefixtures("elsewhere")
def test_journals_are_read_on_this_machine(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Python, by Java beside files that are elsewhere, and by a stream."""
    write_journal(tmp_path / "j", "a", Lines().sent(*WHOLE))
    (file,) = (tmp_path / "j").glob("date=*/*.jsonl")
    sizes = {str(file): file.stat().st_size}
    staged = stage(spark, sizes, f"file://{tmp_path}/staged")
    assert staged.messages.count() == 1
    stream = stream_lines(spark, [str(tmp_path / "j"), str(tmp_path / "k")])
    assert stream.isStreaming
    monkeypatch.setattr("qos.audit.read.local_path", lambda _folder: None)
    files, _ = read_these(spark, sizes)
    assert [row["content"] for row in files.collect()] == [file.read_bytes()]


@pytest.mark.long
@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    "options", [(), ("--from", str(DAY), "--to", str(DAY)), ("--follow", "--once")]
)
def test_an_audit_with_another_default_file_system(
    options: tuple[str, ...],
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch, a day, and a follower, twice each: the second finds what was kept."""
    monkeypatch.chdir(tmp_path)
    write_journal(tmp_path / "j", "a", Lines().sent("accepted", "offered"))
    for out in ("out", f"file://{tmp_path}/out"):
        words = ["audit", "a@x/1=j", "--out", out, "--json", *options]
        # No message can be judged: no journal of the receiver is there.
        status = main(words)
        printed = capsys.readouterr()
        assert status == 3, printed.err
        assert json.loads(printed.out)["lines"] == 2
        assert (tmp_path / "out" / "report.html").exists()
        rows = spark_frame(spark, snapshot(out)["deliveries"]).collect()
        assert [row["msg_id"] for row in rows] == ["m1"]
