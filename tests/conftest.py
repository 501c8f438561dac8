"""What every process that a test starts is to have in its environment; and what is first."""

import os
from pathlib import Path

import pytest

# A JVM that is gone in a minute has no use for the compiler that takes its time. But with
# the other one alone it has room for a fifth of the code, which is full after some tests:
# then it throws away and compiles again. Nor need it prove anew of each of Spark's 24,000
# classes that a Java compiler made it.
os.environ["JAVA_TOOL_OPTIONS"] = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions "
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m "
    "-XX:-BytecodeVerificationRemote"
)
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "spark" / "conf")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What may take long begins first: in the end nothing would run beside it."""
    items.sort(key=_seconds, reverse=True)


def _seconds(item: pytest.Item) -> float:
    """For how long a test may take, if it says so; those of a group stay together."""
    marker = item.get_closest_marker("timeout")
    if marker is None or item.get_closest_marker("xdist_group") is not None:
        return 0.0
    return float(marker.args[0])
