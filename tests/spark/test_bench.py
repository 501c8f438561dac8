"""`python -m benchmarks audit`: correct figures, of an audit with a correct result."""

import dataclasses
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.__main__ import main
from benchmarks.audit import Measured, WrongResult, growth, measure, plan_for
from benchmarks.synth import EXPECTED, synthesise
from qos.audit.batch_tables import TABLES


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(300)
def test_a_size_is_measured_end_to_end(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a user runs it, only smaller; the stored result is the measured one."""
    plot, keep = tmp_path / "plot.svg", tmp_path / "kept"
    words = ["--events", "1k", "--repeat", "1", "--json"]
    words += ["--plot", str(plot), "--keep", str(keep)]
    assert main(["audit", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    (size,) = found["sizes"]
    expected = json.loads((keep / "journals-1000" / EXPECTED).read_text())
    assert size["events"] == expected["lines"]
    (read_s,), (audit_s,) = size["read_s"], size["audit_s"]
    assert size["ratio"] == audit_s / read_s
    assert 2**27 < size["jvm_bytes"] < 2**31
    assert 2**25 < size["python_bytes"] < 2**31
    assert found["growth"] is None
    for name in (*TABLES, "report.html"):
        assert (keep / "audit-1000" / name).exists()
    assert "<svg" in plot.read_text()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(180)
def test_an_audit_that_is_wrong_is_not_measured(
    spark: SparkSession, tmp_path: Path
) -> None:
    """It is easy to be fast and to leave something out."""
    synthesise(plan_for(300), tmp_path / "journals", processes=1)
    path = next((tmp_path / "journals").glob("date=*/*.jsonl"))
    path.write_text(path.read_text().partition("\n")[2])
    with pytest.raises(WrongResult, match=r"there are \d+ lines, and \d+ were found"):
        measure(spark, tmp_path / "journals", tmp_path / "out", repeat=1)


def measured(lines: int, *seconds: float, counted: float = 2.0) -> Measured:
    turns = len(seconds)
    return Measured(lines, 1, 1, [1.0] * turns, [counted] * turns, [*seconds])


def test_the_fixed_cost_is_told_from_that_of_a_line() -> None:
    """Otherwise an audit of few lines seems slow, and one of many fast.

    One size tells nothing.
    """
    sizes = [
        measured(n, 20 + n * 8e-6, 1e9, 0.0, counted=1 + n * 4e-6)
        for n in (10**6, 3 * 10**6, 10**7)
    ]
    found = growth(sizes)
    assert found is not None
    assert dataclasses.astuple(found) == pytest.approx((20, 8, 2))
    assert growth(sizes[:1]) is None


@pytest.mark.parametrize(
    ("seconds", "counted"), [((5.0, 6.0), (2.0, 1.0)), ((6.0, 5.0), (1.0, 2.0))]
)
def test_no_cost_of_a_line_is_told_where_noise_hides_it(
    seconds: tuple[float, float], counted: tuple[float, float]
) -> None:
    """More lines took less time: sizes that lie close together, or a busy machine."""
    sizes = [
        measured(lines, each, counted=count)
        for lines, each, count in zip((1000, 2000), seconds, counted, strict=True)
    ]
    assert growth(sizes) is None


def test_the_ratio_is_the_median_of_the_turns() -> None:
    """A turn in which another program was busy does not decide."""
    found = measured(1, 2.0, 90.0, 3.0)
    assert (found.ratio, found.ratio_inferred) == (3.0, 1.5)


@pytest.mark.parametrize(
    "events", [1, 1000, 50_000, pytest.param(100_000, marks=pytest.mark.long)]
)
def test_a_plan_has_about_so_many_events(events: int, tmp_path: Path) -> None:
    """Otherwise the figures would not be those of 10 million lines."""
    if events > 1000:
        made = synthesise(plan_for(events), tmp_path, processes=1)
        assert made.lines == pytest.approx(events, rel=0.03)
    anomalies = plan_for(events)
    assert (anomalies.lost, anomalies.duplicated, anomalies.stuck) == (7, 5, 3)


def test_a_plot_without_its_extra_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes before the measurement, not after half an hour."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["audit", "--plot", "p.svg"]) == 2
    assert "pip install --group benchmarks" in capsys.readouterr().err
