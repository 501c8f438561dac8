"""The environment of every process that a test starts; and the order of the tests."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from parents import die_with_parent
from virtual_clock import repair
from waiting import PATIENCE

# A process of pytest-xdist would go on with its test when the run is killed, and so would
# the processes that the test has started.
if "PYTEST_XDIST_WORKER" in os.environ:
    die_with_parent()

# A JVM that ends within a minute does not profit from the optimising compiler, which
# takes time. But with the other compiler alone, it has room for a fifth of the code.
# After some tests this is full, and then it discards code and compiles it again. Nor
# need it prove for each of Spark's 24,000 classes that a Java compiler made it. The
# file of classes that `make test` has kept (see spark/class_archive.py) can be used at
# once. Java must not print warnings about that file where the tests read its output.
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

# Not in a folder of configuration: with such a folder, Java would not use that file.
_SPARK = {
    # Small frames gain nothing from compiled code, and compiling takes the most time.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Nor do they gain from being split into tasks, or planned anew after each step. The
    # settings of an operator and of a cluster are tested without this.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}

# Each example has the time of its test: a busy machine is no fault.
settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")

os.environ["JAVA_TOOL_OPTIONS"] = " ".join(
    (*_JAVA, *(f"-D{name}={value}" for name, value in _SPARK.items()))
)
os.environ.pop("SPARK_CONF_DIR", None)

# The code that tries to break the library is not installed; its processes must find it
# too.
os.environ["PYTHONPATH"] = str(Path(__file__).with_name("harness"))

# Each client would read the hundreds of certificates of the system, which takes longer
# than most tests. Nothing here asks for them: tests of TLS have an authority of their own.
os.environ["SSL_CERT_FILE"] = os.devnull

# Under nohup this signal is ignored, also by processes of the tests; otherwise a
# command ends by it.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# looptime asks asyncio for the loop of each test. For a test without one, asyncio would
# make a loop, and nobody would close it.
asyncio.set_event_loop(None)

# Half an hour away from every other zone. On a machine set to UTC, no test would notice
# if UTC is taken for local time or the other way round. Spark gives times as local time
# without a zone, and its tests compare them with UTC.
_ZONE, _ZONE_WITH_SPARK = "America/St_Johns", "UTC"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set the time zone of this process and of the processes that a test starts."""
    os.environ["TZ"] = _ZONE_WITH_SPARK if "spark" in item.path.parts else _ZONE
    time.tzset()


# The tests of these folders stay in this process, so the loop's clock may run ahead: when
# nothing is left to do, it jumps to the next timer. A retry or a deadline takes no time,
# and a busy machine cannot make it come too early. While something is done in a thread of
# the loop (SQLite, aiofiles) the clock runs as usual. A test that starts a process, or
# means real time, says `@pytest.mark.looptime(False)`.
_VIRTUAL_TIME = {
    "client",
    "engine",
    "stream",
    "worker",
    "xep_0254",
    "xep_0337",
    "xep_qos",
}


@pytest.fixture(autouse=True)
def virtual_clock(request: pytest.FixtureRequest) -> None:
    """Repair the clock of tests that have one of their own; see virtual_clock.py."""
    if request.node.get_closest_marker("looptime") is not None:
        repair(request.getfixturevalue("monkeypatch"))


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Choose the clock and the limit of each test; start the long ones first.

    At the end, nothing would run beside them.
    """
    for item in items:
        if item.path.parent.name in _VIRTUAL_TIME:
            item.add_marker(pytest.mark.looptime)
        if PATIENCE != 1:
            seconds = _seconds(item) or float(config.getini("timeout"))
            item.add_marker(pytest.mark.timeout(seconds * PATIENCE), append=False)
    items.sort(key=_order, reverse=True)


def _order(item: pytest.Item) -> float:
    """The limit of a test; tests of a group stay together."""
    grouped = item.get_closest_marker("xdist_group") is not None
    return 0.0 if grouped else _seconds(item)


def _seconds(item: pytest.Item) -> float:
    """The limit of a test, if it has one of its own."""
    marker = item.get_closest_marker("timeout")
    return 0.0 if marker is None else float(marker.args[0])
