"""The metrics: how Prometheus reads them, and that an alert can rely on each."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from qos.audit.report_data import ReportData
from qos.audit.report_metrics import metrics
from report_samples import DAY, report

AT = datetime(2026, 1, 6, 12, 30, tzinfo=UTC)
EVIL = 'a"} 1\n# TYPE x counter\\\\n\t\x00\u2028é \ud800'
ALERTS = Path(__file__).parents[2] / "examples" / "audit_alerts.yml"

#: As the format is specified: a name, labels without what needs a backslash, a number.
_SAMPLE = re.compile(
    r'(xmpp_qos_audit_[a-z0-9_]+)(\{[a-z_]+="([^"\\\n]|\\[\\"n])*"'
    r'(,[a-z_]+="([^"\\\n]|\\[\\"n])*")*\})? (-?[0-9.]+(e[+-]?[0-9]+)?)'
)


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Each sample by its name and labels."""
    found = {}
    for family in text_string_to_metric_families(text):
        assert family.type == "gauge"
        assert family.documentation.endswith(".")
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def value(text: str, name: str, **labels: str) -> float | None:
    return samples(text).get((f"xmpp_qos_audit_{name}", frozenset(labels.items())))


def made(data: ReportData) -> str:
    return metrics(data, DAY, DAY, lines=9, at=AT)


def test_prometheus_reads_each_number() -> None:
    """By its own parser."""
    text = made(report("q"))
    assert value(text, "timestamp_seconds") == AT.timestamp()
    midnight = datetime(2026, 1, 5, tzinfo=UTC).timestamp()
    assert value(text, "first_day_timestamp_seconds") == midnight
    assert value(text, "last_day_timestamp_seconds") == midnight
    assert value(text, "lines") == 9
    assert value(text, "files_not_closed") == 3
    assert value(text, "problems", kind="torn-line") == 2
    # Each rule is there, so that an alert knows one that holds.
    assert value(text, "problems", kind="long-line") == 0
    assert value(text, "messages", outcome="delivered") == 2000
    assert value(text, "anomalies", kind="lost") == 300
    assert value(text, "latency_p95_seconds", level="assured") == 0.5
    assert value(text, "judged_messages") == 1990
    assert value(text, "provable_ratio") == pytest.approx(0.995)
    assert value(text, "unproven_messages", reason="no-journal") == 10
    assert value(text, "windows") == 288
    assert value(text, "windows_complete") == 280
    assert value(text, "queue_items", state="dead") == 1
    assert value(text, "queue_open_items", service="q", queue="q") == 1
    assert value(text, "queue_oldest_seconds", service="q", queue="q") == 90000.0


def test_what_was_not_found_is_zero() -> None:
    """An alert on a missing number stays silent."""
    text = made(ReportData())
    for kind in ("lost", "duplicated", "orphaned", "stuck", "in-doubt"):
        assert value(text, "anomalies", kind=kind) == 0
    assert value(text, "messages", outcome="delivered") == 0
    assert value(text, "queue_items", state="open") == 0
    # Of nothing, no part is provable, nor is all of it.
    assert value(text, "provable_ratio") is None


def test_a_name_is_never_taken_for_a_sample() -> None:
    """The owner of a queue's name must not be able to raise an alert, or to hide one."""
    text = made(report(EVIL))
    name = EVIL.replace("\ud800", "?")
    assert value(text, "queue_open_items", service=name, queue=name) == 1
    assert len(samples(text)) == len(samples(made(report("q"))))
    seen = set()
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# "):
            word, of, _ = line[2:].split(" ", 2)
            assert (word, of) not in seen
            seen.add((word, of))
        else:
            found = _SAMPLE.fullmatch(line)
            assert found, line
            assert ("TYPE", found[1]) in seen
    assert text.encode()


def test_two_queues_of_the_same_name_are_no_broken_file() -> None:
    """Prometheus refuses a file in which a sample is there twice."""
    data = report("q", rows=2)
    for row in data.queues:
        row["queue"] = row["service"] = None
    assert value(made(data), "queue_open_items", service="", queue="") == 1


def test_the_alerts_ask_for_numbers_that_there_are() -> None:
    """Otherwise they would never be raised."""
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    names = {name for name, _ in samples(made(report("q")))}
    for rule in group["rules"]:
        asked = set(re.findall(r"xmpp_qos_audit_\w+", rule["expr"]))
        assert asked
        assert asked <= names
        of_kinds = re.findall(r'audit_(\w+){kind=~?"(.*?)"', rule["expr"])
        for name, kinds in of_kinds:
            for kind in kinds.split("|"):
                assert value(made(ReportData()), name, kind=kind) == 0, kind
