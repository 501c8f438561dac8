"""One Spark session for all tests of this folder: it takes ten seconds to start."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from frames import Lines
from qos.pipeline.session import spark_session


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """As `xmpp-qos audit` has it, but for less to share out."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Without groups each file would be taken apart, and nobody would say so.
        assert any("@spark" in item.nodeid for item in request.session.items)
    with spark_session("tests", master="local[2]", quiet=True) as spark:
        yield spark


@pytest.fixture(scope="session")
def spark_as_it_comes() -> dict[str, str]:
    """An environment for commands in which Spark has no options of the tests."""
    words = os.environ["JAVA_TOOL_OPTIONS"].split(" ")
    options = " ".join(word for word in words if not word.startswith("-Dspark."))
    return {**os.environ, "JAVA_TOOL_OPTIONS": options}


@pytest.fixture
def lines() -> Lines:
    """No lines yet."""
    return Lines()
