"""An audit on a machine that lacks room, a /tmp that executes, the user's name, or a jar."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks.synth import Plan, synthesise
from qos.cli.status import Status
from qos.testing.processes import Child

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.xdist_group("spark-processes"),
    pytest.mark.timeout(1800),
]

_HERE = Path(__file__).parent

#: Users may mount in a namespace of their own; nobody else sees it.
_APART = (*Child.mortal(), "unshare", "--user", "--map-root-user", "--mount")
#: As a user without a name, who may read what we may.
_NAMELESS = (*Child.mortal(), "unshare", "--user", "--map-user=54321")

_AUDIT = (sys.executable, "-P", "-m", "qos", "audit")

_ROOM = (
    "a disk is full: make room in the folder of the results and in Spark's folder of "
    "temporary files (SPARK_LOCAL_DIRS, otherwise /tmp)"
)

#: The disk is full while lines are staged, while Spark writes one table or another, while
#: deltalake commits one; and on the last one there is room.
_SIZES = ("16k", "64k", "128k", "160k", "192k", "224k", "256k", "320k", "8m")

_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

#: In /tmp nothing is executed; in the two folders that are named first, anything: the
#: Python that runs this, which may be in /tmp, and an empty one.
_NOTHING_IN_TMP = (
    "mount --bind /tmp /tmp && mount -o remount,bind,noexec /tmp && "
    'mount --bind "$1" "$1" && mount -o remount,bind,exec "$1" && '
    'mount -t tmpfs tmpfs "$2" && shift 2 && exec "$@"'
)


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """The journals of an hour, with a lost message."""
    plan = Plan(devices=4, messages=30, lost=1, duplicated=0, stuck=0, days=1, hours=1)
    folder = tmp_path / "journals"
    synthesise(plan, folder, processes=1)
    return folder


def apart(
    *words: str | Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in a namespace of mounts of its own."""
    return subprocess.run(
        (*_APART, *words), env=env, capture_output=True, text=True, timeout=1500
    )


def test_a_full_disk_ends_an_audit_with_what_to_do_wherever_it_is_noticed(
    tmp_path: Path, journals: Path
) -> None:
    """Java, deltalake and Python each have an error of their own for it."""
    child = (sys.executable, _HERE / "small_disk_child.py")
    done = apart(
        *(*child, journals, tmp_path, *_SIZES),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert [end["size"] for end in ends] == list(_SIZES)
    *full, last = ends
    assert (last["status"], last["stderr"]) == (Status.NOT_DELIVERED, "")
    for end in full:
        assert end["status"] == Status.OUTPUT, end
        assert end["stderr"].startswith("xmpp-qos: "), end
        assert end["stderr"].endswith(f": {_ROOM}\n"), end
        assert end["stderr"].count("\n") == 1, end
    by_spark = ["Spark has failed while" in end["stderr"] for end in full]
    assert {*by_spark} == {True, False}


def test_a_tmp_that_executes_nothing_ends_an_audit_with_what_to_do(
    tmp_path: Path, journals: Path, spark_as_it_comes: dict[str, str]
) -> None:
    """Java unpacks the library there that compresses; the advice is true."""
    other = tmp_path / "other"
    other.mkdir()

    def audit(out: str, *options: str) -> subprocess.CompletedProcess[str]:
        env = {**spark_as_it_comes}
        env["JAVA_TOOL_OPTIONS"] = " ".join((env["JAVA_TOOL_OPTIONS"], *options))
        words = (*_AUDIT, journals, "--out", tmp_path / out)
        script = ("sh", "-c", _NOTHING_IN_TMP, "sh")
        return apart(*script, sys.prefix, other, *words, env=env)

    done = audit("out")
    assert done.returncode == Status.USAGE, done.stderr
    assert done.stderr.count("\n") == 1
    assert "nothing may be executed in /tmp (noexec), where Java unpacks" in done.stderr
    assert "set JAVA_TOOL_OPTIONS=-Djava.io.tmpdir=DIR" in done.stderr
    done = audit("again", f"-Djava.io.tmpdir={other}")
    assert done.returncode == Status.NOT_DELIVERED, done.stderr


@pytest.mark.parametrize(
    ("begin", "option", "said"),
    [
        (
            _NAMELESS,
            "",
            "Spark does not start: the user 54321 has no line in /etc/passwd, and Java "
            "needs its name: add a line, or start this as another user",
        ),
        (
            Child.mortal(),
            f"-Dspark.sql.catalog.spark_catalog={_CATALOG}",
            f"Spark has no jar with {_CATALOG}, which spark.sql.catalog.spark_catalog "
            "needs: name the jar in spark.jars.packages, or take that line out of "
            "spark-defaults.conf",
        ),
    ],
    ids=["user", "jar"],
)
def test_what_a_machine_lacks_is_one_sentence_with_what_to_do(
    tmp_path: Path,
    journals: Path,
    spark_as_it_comes: dict[str, str],
    begin: Sequence[str],
    option: str,
    said: str,
) -> None:
    """Spark says it among a hundred lines."""
    options = f"{spark_as_it_comes['JAVA_TOOL_OPTIONS']} {option}"
    done = subprocess.run(
        (*begin, *_AUDIT, journals, "--out", tmp_path / "out"),
        env={**spark_as_it_comes, "JAVA_TOOL_OPTIONS": options},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == Status.USAGE, done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith(f"{said}\n")
