"""Wrong usage that the two commands refuse before Spark starts.

And the text of the README.
"""

import re
from pathlib import Path

import pytest

from qos.audit.batch_tables import TABLES
from qos.audit.tables.anomalies import KINDS
from qos.audit.tables.cover import REASONS
from qos.cli import main
from qos.journal.writer import ROTATE_BYTES, ROTATE_S
from qos.spark import session


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Run a command that makes no sense; return the one line it says."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    return err


@pytest.fixture(autouse=True)
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full" / "date=2026-01-05").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    (tmp_path / "other").mkdir()
    return tmp_path / "full"


FOLLOW = ("audit", "full", "--out", "o", "--follow")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("audit",), "JOURNAL"),
        (("audit", "full"), "--out"),
        (("audit", "--out", "o"), "JOURNAL"),
        (("audit", "nowhere", "--out", "o"), "nowhere: there is no such folder"),
        (("audit", "file", "--out", "o"), "file: there is no such folder"),
        (("audit", "other", "--out", "o"), "no date=… folder in it"),
        (("audit", "", "--out", "o"), ": there is no such folder"),
        (("audit", "full", "--out", "file"), "--out file: it is a file, and no folder"),
        (
            ("audit", "lamp@x/1=nowhere", "--out", "o"),
            "nowhere: there is no such folder",
        ),
        (("audit", "@@x=full", "--out", "o"), "@@x=full: '@@x' is no JID"),
        (("audit", "=full", "--out", "o"), "=full: '' is no JID"),
        (
            ("audit", "a@x=full", "full", "--out", "o"),
            "given twice, not as of the same",
        ),
        (("audit", "a@x=full", "b@x=full", "--out", "o"), "full is given twice"),
        (("audit", "full", "--out", ""), "--out: which folder?"),
        (("audit", "full", "--out", "file/o"), "--out file/o: "),
        (("audit", "full", "--out", "o", "--from", "today"), "'today' is not a date"),
        (
            (
                "audit",
                "full",
                "--out",
                "o",
                "--from",
                "2026-01-06",
                "--to",
                "2026-01-05",
            ),
            "--from 2026-01-06 is after --to 2026-01-05",
        ),
        (("audit", "full", "--out", "o", "--stuck-after", "0"), "'0' is not a time"),
        (("audit", "full", "--out", "o", "--skew", "x"), "'x' is not a time"),
        (("audit", "full", "--out", "o", "--once"), "--once is of --follow only"),
        (("audit", "full", "--out", "o", "--every", "5"), "--every is of --follow"),
        (("audit", "full", "--out", "o", "--late", "5"), "--late is of --follow only"),
        ((*FOLLOW, "--late", "0"), "'0' is not a number of days"),
        ((*FOLLOW, "--from", "2026-01-06"), "--follow has no --from and --to"),
        ((*FOLLOW, "--once", "--every", "5"), "--once or --every"),
        ((*FOLLOW, "--stuck-after", "86400", "--late", "1"), "make --late longer"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is written, and Spark's start of ten seconds is not waited for."""
    assert said in refused(capsys, *words)


AUDIT = ("audit", "full", "--out", "o")


def test_no_java_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what to install."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "openjdk-17-jre-headless" in refused(capsys, *AUDIT)


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is 11"),
        ('java version "1.8.0_392"', "is 8"),
        ("what?", "is of an unknown version"),
    ],
)
def test_an_old_java_is_one_line(
    says: str,
    version: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With JAVA_HOME, that Java counts, as for Spark itself."""
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    line = refused(capsys, *AUDIT)
    assert version in line
    assert "openjdk-17-jre-headless" in line


def test_a_missing_extra_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most users of this library do not need Spark."""
    monkeypatch.setattr(session, "_EXTRA", ("pyspark_is_not_here", "pyarrow"))
    line = refused(capsys, *AUDIT)
    assert "no pyspark_is_not_here: pip install '.[spark]'" in line


def test_the_guide_lists_the_tables_and_the_anomalies() -> None:
    """Each of them, in order, and no others."""
    guide = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()

    def listed(heading: str) -> tuple[str, ...]:
        rows = guide.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
        return tuple(re.findall(r"^\| `([\w-]+)` \|", rows, re.MULTILINE))

    assert listed("table") == TABLES
    assert listed("verdict") == KINDS
    assert set(listed("reason")) == set(REASONS)
    assert f"{ROTATE_S / 60:.0f} minutes or {ROTATE_BYTES // 2**20} MiB" in guide
