"""One Spark session for all tests of this folder: it takes ten seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from frames import Lines
from qos.pipeline.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """As `xmpp-qos audit` has it, but for less to share out."""
    with spark_session("tests", master="local[2]", quiet=True) as spark:
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        spark.conf.set("spark.sql.adaptive.enabled", "false")
        yield spark


@pytest.fixture
def lines() -> Lines:
    """No lines yet."""
    return Lines()
