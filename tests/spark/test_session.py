"""The settings of our Spark sessions, together with those of the user."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import PATIENCE

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
]

_KEYS = (
    "spark.driver.memory",
    "spark.ui.enabled",
    "spark.sql.shuffle.partitions",
    "spark.sql.session.timeZone",
    "spark.driver.bindAddress",
)

_ASK = f"""
import json
from qos.spark.session import spark_session
with spark_session(master="local[1]", quiet=True) as spark:
    print(json.dumps([spark.conf.get(key) for key in {_KEYS}]))
"""

_STARTING = """
import os, threading
from qos.spark.session import NoSpark, spark_session

def speak():
    with open("there"):
        os.write(2, b"a warning of ours")
    open("go", "w").close()

threading.Thread(target=speak).start()
try:
    with spark_session(quiet=True):
        pass
except NoSpark as error:
    print(error)
"""

_NO_JAVA = """#!/bin/sh
echo 'java.io.IOException: it stands in the way' >&2
: > there
read _ < go
exit 1
"""


def test_what_a_command_says_while_java_starts_is_on_stderr_and_what_java_says_is_not(
    tmp_path: Path,
) -> None:
    """Other threads write there: before, a warning of ours was with Java's, and lost."""
    for name in ("there", "go"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "spark-submit"
    script.write_text(_NO_JAVA)
    script.chmod(0o755)
    finished = subprocess.run(
        (sys.executable, "-P", "-c", _STARTING),
        cwd=tmp_path,
        env={**os.environ, "SPARK_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120 * PATIENCE,
    )
    assert finished.stderr == "a warning of ours"
    assert "it stands in the way" in finished.stdout


@pytest.mark.long
def test_the_users_spark_defaults_hold_where_no_result_depends_on_them(
    tmp_path: Path,
) -> None:
    """But never the time zone, by which days are told apart, nor an open port."""
    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\n"
        "spark.driver.memory 600m\n"
        "  spark.sql.shuffle.partitions=3\n"
        "spark.sql.session.timeZone Asia/Tokyo\n"
        "spark.driver.bindAddress 0.0.0.0\n"
    )
    finished = subprocess.run(
        (sys.executable, "-P", "-c", _ASK),
        env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        check=True,
        timeout=120,
    )
    found = json.loads(finished.stdout)
    assert found == ["600m", "false", "3", "UTC", "127.0.0.1"]
