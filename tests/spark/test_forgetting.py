"""An account that asked to be forgotten is in no table, now or later."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from frames import NOON, Lines, write_journal
from qos.audit import store
from qos.audit.audits import Audits
from qos.audit.delta import CannotWrite
from qos.audit.driver import audit
from qos.audit.erasure import forget
from qos.audit.follow import Follower
from qos.audit.follow_lock import alone
from qos.audit.forgetting import is_about, is_about_at_all
from qos.audit.snapshot import snapshot
from qos.audit.swap import swap
from qos.audit.tables import Limits
from qos.cli import main

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-again"),
    pytest.mark.timeout(600),
]

DAY = NOON.date()
LIMITS = Limits(now=NOON + timedelta(days=1))
LAMP = "lamp@x"
WHOLE = ("accepted", "offered", "received", "released", "delivered")


@pytest.mark.long
def test_a_row_is_about_an_account_if_any_of_its_columns_names_it(
    spark: SparkSession,
) -> None:
    """Its devices and the files of its journal; no account with a similar name."""
    texts = {
        True: (
            "lamp@x",
            "lamp@x/1",
            "/j/date=2026-01-05/lamp@x%2F1-b-1.jsonl",
            "/j/.lamp@x-b-1.jsonl",
            "lamp@x/1 boot",
        ),
        False: ("a.lamp@x", "lamp@x.org", "lamp@x-y", "lamp", "x", "b@lamp@x", None),
    }
    for expected, values in texts.items():
        for value in values:
            for row, columns in (
                ((1, value, "hub@x"), "n int, a string, b string"),
                ((1, ["hub@x", value]), "n int, a array<string>"),
                ((1, [(value, 2)]), "n int, a array<struct<b: string, c: int>>"),
            ):
                frame = spark.createDataFrame([row], columns)
                accounts = [LAMP, "other@x"]
                found = frame.where(is_about(accounts, frame.schema)).count()
                assert found == expected, (value, columns)
                without_schema = frame.where(is_about_at_all(accounts)).count()
                assert without_schema == expected, (value, columns)


def table(spark: SparkSession, *names: str) -> DataFrame:
    rows = [(DAY, 1, name) for name in names]
    return spark.createDataFrame(rows, "date date, hour int, sender string")


def senders(out: str, name: str = "deliveries") -> list[str]:
    """The senders that a reader sees."""
    return sorted(snapshot(out)[name].to_pyarrow_table()["sender"].to_pylist())


def test_rows_of_a_forgotten_account_are_removed_and_never_written_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By the writes of a batch and of a follower; a trace is in the history."""
    out = str(tmp_path)
    tables = Audits(spark, out)
    tables.recover()
    for name, names in (("deliveries", ("hub@x", LAMP)), ("refusals", ("hub@x",))):
        store.replace_days(table(spark, *names), f"{out}/{name}", DAY, DAY)
    tables.record(DAY, DAY)
    (tmp_path / "report.html").write_text(LAMP)
    for touched in (["deliveries"], []):
        assert forget(spark, out, LAMP) == touched
        assert senders(out) == ["hub@x"]
        assert senders(out, "refusals") == ["hub@x"]
    assert not (tmp_path / "report.html").exists()
    commits = DeltaTable(f"{out}/deliveries").history()
    assert [entry.get("cause") for entry in commits if "cause" in entry] == ["forget"]
    tables = Audits(spark, out)
    tables.recover()
    assert senders(out) == ["hub@x"]
    rows = table(spark, "hub@x", LAMP, f"{LAMP}/1")
    store.replace_days(rows, f"{out}/deliveries", DAY, DAY)
    swap(
        rows,
        f"{out}/refusals",
        on=["sender"],
        keys=rows.select("sender"),
        hours=[(DAY, 1)],
    )
    store.replace_table(rows, f"{out}/problems")
    tables.record(DAY, DAY)
    for name in ("deliveries", "refusals", "problems"):
        assert senders(out, name) == ["hub@x"]


def test_an_account_is_forgotten_only_where_an_audit_has_ended_and_none_runs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the command says in one line what it wants."""
    out = str(tmp_path / "out")
    with pytest.raises(CannotWrite, match="no audit was finished there"):
        forget(spark, out, LAMP)
    with alone(out), pytest.raises(CannotWrite, match="another audit writes into it"):
        forget(spark, out, LAMP)
    for words, says in (
        ((), "forget: give one ACCOUNT"),
        ((LAMP, "hub@x"), "forget: give one ACCOUNT"),
        ((f"{LAMP}/1",), "is no account, such as"),
        (("@@x",), "is no account, such as"),
        ((LAMP, "--follow"), "forget has no --follow, --from, --to and --keep"),
    ):
        assert main(["audit", "forget", *words, "--out", out]) == 2
        err = capsys.readouterr().err
        assert says in err
        assert err.count("\n") == 1


def journals(folder: Path) -> None:
    """A message of the lamp to the hub, one of the hub, and one that never ended."""
    for sender, message, steps in (
        (LAMP, "m1", WHOLE),
        ("hub@x", "m2", WHOLE),
        (LAMP, "m3", WHOLE[:2]),
    ):
        name = f"{sender.partition('@')[0]}-{message}"
        lines = Lines().sent(
            *steps, node=f"{sender}/1", source=f"{sender}/1", msg_id=message
        )
        write_journal(folder, name, lines)


@pytest.mark.parametrize("first", [None, pytest.param(DAY, marks=pytest.mark.long)])
def test_later_audits_of_the_same_journals_respect_it(
    spark: SparkSession,
    tmp_path: Path,
    first: object,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of everything, and of a day; with the messages that were kept as not ended."""
    folder, out = tmp_path / "journals", str(tmp_path / "out")
    journals(folder)

    def audited(day: object) -> None:
        audit(spark, [str(folder)], out, limits=LIMITS, first=day)  # type: ignore[arg-type]  # a date

    audited(first)
    assert senders(out) == ["hub@x", LAMP, LAMP]
    assert main(["audit", "forget", LAMP, "--out", out, "--json"]) == 0
    assert '"deliveries"' in capsys.readouterr().out
    for day in (first, None, DAY + timedelta(days=1)):
        audited(day)
        assert senders(out) == ["hub@x"]
        assert LAMP not in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.long
def test_a_follower_respects_it(spark: SparkSession, tmp_path: Path) -> None:
    """It has judged the message that never ended, and judges it again."""
    folder, out = tmp_path / "journals", str(tmp_path / "out")
    journals(folder)

    def look() -> None:
        Follower(
            spark,
            [str(folder)],
            out,
            limits=lambda: LIMITS,
            lateness=timedelta(days=7),
        ).look()

    look()
    assert senders(out) == ["hub@x", LAMP, LAMP]
    forget(spark, out, LAMP)
    assert senders(out) == ["hub@x"]
    lines = Lines().sent(
        *WHOLE, node=f"{LAMP}/1", source=f"{LAMP}/1", msg_id="m4", boot="later"
    )
    write_journal(folder, "lamp-m4", lines)
    look()
    assert senders(out) == ["hub@x"]
