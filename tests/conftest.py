"""What every process that a test starts is to have in its environment; and what is first."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

# A JVM that is gone in a minute has no use for the compiler that takes its time. But with
# the other one alone it has room for a fifth of the code, which is full after some tests:
# then it throws away and compiles again. Nor need it prove anew of each of Spark's 24,000
# classes that a Java compiler made it; and what `make test` has kept of them (see
# spark/class_archive.py) is there at once. Whatever it thinks of that file, it is to say
# nothing of it where the tests read what it says.
_JAVA = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:-BytecodeVerificationRemote",
    f"-XX:SharedArchiveFile={Path(sys.prefix, 'spark.jsa')}",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
)

# Not in a folder of configuration: with one Java would not take that file.
_SPARK = {
    # Small frames gain nothing from compiled code, and compiling it takes longest.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Nor from being shared out among tasks, or planned anew after each step. What an
    # operator runs, and what a cluster does, is tested without this.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}

os.environ["JAVA_TOOL_OPTIONS"] = " ".join(
    (*_JAVA, *(f"-D{name}={value}" for name, value in _SPARK.items()))
)
os.environ.pop("SPARK_CONF_DIR", None)

# What tries to break it is not installed; its processes are to find it too.
os.environ["PYTHONPATH"] = str(Path(__file__).with_name("harness"))

# nohup has it ignored, also by what the tests start; and a command ends by it otherwise.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Half an hour beside every other zone: where UTC is taken for local time or the other way
# round, no test would see it on a machine that is set to UTC. Spark gives moments as local
# time without a zone, and its tests compare them with UTC.
_ZONE, _ZONE_WITH_SPARK = "America/St_Johns", "UTC"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set the time zone, of this process and of those that a test starts."""
    os.environ["TZ"] = _ZONE_WITH_SPARK if "spark" in item.path.parts else _ZONE
    time.tzset()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What may take long begins first: in the end nothing would run beside it."""
    items.sort(key=_seconds, reverse=True)


def _seconds(item: pytest.Item) -> float:
    """For how long a test may take, if it says so; those of a group stay together."""
    marker = item.get_closest_marker("timeout")
    if marker is None or item.get_closest_marker("xdist_group") is not None:
        return 0.0
    return float(marker.args[0])
