"""An audit on a real cluster, by the example that shows how to submit one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fleets import Fleets, journals_in
from published import differences, wrong_verdicts

SCRIPT = Path(__file__).parents[2] / "examples" / "spark_cluster.sh"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-cluster"),
    pytest.mark.timeout(420),
]


def submit(
    folder: Path, *words: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the example, with its temporary files in this folder."""
    given = {
        "PYTHON": sys.executable,
        "TMPDIR": str(folder),
    }
    return subprocess.run(
        [SCRIPT, *words],
        env=os.environ | given | environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


@pytest.mark.long
def test_a_cluster_of_two_workers_finds_what_one_laptop_finds(
    tmp_path: Path, spark_as_it_comes: dict[str, str], fleets: Fleets
) -> None:
    """The same entry point, by spark-submit; and nothing is left of the cluster."""
    journal, out, own = (tmp_path / name for name in ("journal", "out", "own"))
    fleets.write(journal, late=False)
    fleets.write(journal, late=True)
    own.mkdir()
    options = spark_as_it_comes["JAVA_TOOL_OPTIONS"]
    words = [*journals_in(journal), "--out", str(out), "--json"]
    done = submit(own, *words, JAVA_TOOL_OPTIONS=options)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert differences(out, fleets.recount) == {}
    assert wrong_verdicts(out, fleets.truth) == {}
    count = sum(found["anomalies"].values())
    assert f"{count} anomalies: " in (out / "report.html").read_text()
    assert "Two workers at spark://127.0.0.1:" in done.stderr
    assert "Executors: 2\n" in done.stderr
    assert list(own.iterdir()) == []
    assert processes_with(str(own)) == []


def processes_with(word: str) -> list[str]:
    """Processes that have this word in their environment or arguments."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in text:
            found.append((folder / "cmdline").read_text())
    return found


def test_a_wrong_environment_is_one_line(tmp_path: Path) -> None:
    """Before anything is started."""
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    for name in ("bash", "dirname", "env"):
        (bin_ / name).symlink_to(f"/usr/bin/{name}")
    bare = bin_ / "python"
    # Without site-packages.
    bare.write_text(f'#!/bin/bash\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    for words, environment, says in (
        ((), {}, "which journals?"),
        (("j",), {"PYTHON": "/no/python"}, "there is no /no/python"),
        (("j",), {"PYTHON": str(bare)}, "has no pyspark: pip install"),
        (
            ("j",),
            {"PATH": str(bin_), "JAVA_HOME": str(tmp_path)},
            "openjdk-17-jre-headless",
        ),
    ):
        done = submit(tmp_path, *words, **environment)
        assert done.returncode == 2, done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith("spark_cluster.sh: ")
        assert says in line
