"""One Spark session for all tests of this folder: it takes ten seconds to start."""

import contextlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.synth import Plan, synthesise
from fleets import NOW, Fleets, journals_in, make_fleets
from frames import Lines
from qos.audit.driver import audit
from qos.audit.tables import Limits
from qos.cli import main
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
    """Journals with two lost messages, one duplicated, one stuck, and a foreign file.

    Attributes:
        journals: of two days.
        out: the result of an audit of them, much later.
        summary: what the command has printed.
    """

    journals: Path
    out: Path
    summary: dict[str, Any]


@pytest.fixture(scope="session")
def audited(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """By the command, in the session that is there."""
    folder = tmp_path_factory.mktemp("audited")
    journals, out = folder / "journals", folder / "out"
    plan = Plan(
        devices=20, messages=700, lost=2, duplicated=1, stuck=1, days=2, hours=13
    )
    synthesise(plan, journals, processes=1)
    (journals / "date=2026-01-05" / "notes.txt").write_text("foreign")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["audit", str(journals), "--out", str(out), "--json"]) == 1
    return Audited(journals, out, json.loads(printed.getvalue()))


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
