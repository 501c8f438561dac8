"""Wrong usage that the two commands refuse before Spark starts.

And the text of the README.
"""

import re
from pathlib import Path

import pytest

from qos.audit.batch_tables import TABLES
from qos.audit.tables.anomalies import KINDS
from qos.audit.tables.journal_coverage import REASONS
from qos.cli import main
from qos.cli.status import Status
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


def test_a_backslash_in_the_folder_of_the_results_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Delta's library takes it for a slash, and would not find its own files."""
    line = refused(capsys, "audit", "full", "--out", r"a\b")
    assert r"--out a\b: with a \ in its name" in line
    assert not list(tmp_path.glob("a*"))


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


def test_the_guide_lists_the_statuses_of_an_audit() -> None:
    """Also those of a fault of ours, and of a full disk: a script asks for them."""
    guide = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    rows = guide.partition("| exit status |")[2].partition("\n\n")[0]
    listed = {int(text) for text in re.findall(r"^\| ([0-9]+) \|", rows, re.MULTILINE)}
    errors = {Status.USAGE, Status.INTERNAL, Status.OUTPUT}
    assert listed == errors | {Status.DONE, Status.NOT_DELIVERED, Status.IN_DOUBT}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--keep", "0"), "'0' is not a number of days, from 1"),
        (("--keep", "7", "--follow"), "--keep 7 is not longer than --late 7"),
        (("--keep", "1", "--to", "2026-01-05"), "--to 2026-01-05 is before the days"),
    ],
)
def test_days_that_are_not_kept_are_not_audited(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], line: str
) -> None:
    """Their rows would be removed at once."""
    assert main((*AUDIT, *words)) == 2
    assert line in capsys.readouterr().err
