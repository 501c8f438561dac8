"""One Spark session for all tests of this folder: it takes ten seconds to start."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from fleets import NOW, Fleets, journals_in, make_fleets
from frames import Lines
from qos.audit.driver import audit
from qos.audit.synth import Plan, synthesise
from qos.audit.tables import Limits
from qos.spark.session import spark_session


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session as for `xmpp-qos audit`, but with fewer partitions."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Without groups, each file would silently be split.
        assert any("@spark" in item.nodeid for item in request.session.items)
    with spark_session("tests", master="local[2]", quiet=True) as spark:
        yield spark


@dataclass(frozen=True)
class Audited:
    """Journals with two lost messages, one duplicated, two stuck, and one bad line.

    Attributes:
        journals: of one day.
        out: the result of an audit of them, much later.
    """

    journals: Path
    out: Path


@pytest.fixture(scope="session")
def audited(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """For tests that reach the same result in another way."""
    folder = tmp_path_factory.mktemp("audited")
    made = Audited(folder / "journals", folder / "out")
    plan = Plan(devices=5, messages=60, lost=2, duplicated=1, stuck=2, hours=1)
    synthesise(plan, made.journals, processes=1)
    (day,) = made.journals.glob("date=*")
    with min(day.iterdir()).open("a") as file:
        file.write("nonsense\n")
    limits = Limits(now=datetime(2026, 2, 1, tzinfo=UTC))
    audit(spark, [str(made.journals)], str(made.out), limits=limits)
    return made


@pytest.fixture(scope="session")
def fleets(tmp_path_factory: pytest.TempPathFactory) -> Fleets:
    """Two fleets, and the truth about them."""
    return make_fleets(tmp_path_factory.mktemp("fleets"), seed=0)


@pytest.fixture(scope="session")
def audited_fleets(
    spark: SparkSession, fleets: Fleets, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The result of an audit of them, for tests that reach the same result in another
    way.
    """
    out = tmp_path_factory.mktemp("audited-fleets")
    audit(spark, journals_in(fleets.journals), str(out), limits=Limits(now=NOW))
    return out


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
