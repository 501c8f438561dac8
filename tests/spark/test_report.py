"""The page: whole, bounded, and never what somebody else has written."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser

import pytest

from qos.pipeline.report import render
from qos.pipeline.report_data import ReportData

EVIL = "</script><script>alert(1)</script><a href='//evil'>\"&\x00\u202e"

DAY = date(2026, 1, 5)
MOMENT = datetime(2026, 1, 5, 12, tzinfo=UTC)


def data(name: str) -> ReportData:
    """A report in which everything is called so."""
    route = {"sender": name, "receiver": name, "level": "assured", "messages": 1}
    times = {"p50": 0.1, "p95": 20.0, "p99": 3000.0}
    points = {"line": name, "moment": MOMENT, **times}
    evidence = {"msg_id": name, "accepted_at": name, "condition": name}
    return ReportData(
        outcomes={"delivered": 2, "in-doubt": 1},
        anomaly_counts={"lost": 300, "in-doubt": 1},
        problem_counts={"torn-line": 2},
        latency=[{**points, "messages": 1}],
        outcomes_by_time=[{"moment": MOMENT, "outcome": "delivered", "messages": 2}],
        slow=[{**route, **times}],
        retried=[{**route, "retried": 1, "rate": 1.0}],
        refusals=[{"source": name, "receiver": name, "reason": name, "refusals": 1}],
        anomalies=[
            {
                "kind": kind,
                "ended": name,
                "msg_id": name,
                "sender": name,
                "receiver": name,
                "evidence": json.dumps(evidence),
            }
            for kind in ("lost", "in-doubt")
        ],
        waits=[{**points, "items": 1}],
        queues=[
            {
                "queue": name,
                "service": name,
                "items": 1,
                "accepted": 1,
                "dead": 0,
                "open": 0,
                "again": 0,
                "oldest_s": None,
                **times,
            }
        ],
        workers=[
            {
                "worker": name,
                "queue": name,
                "started": 1,
                "accepted": 1,
                "released": 0,
                "modified": 0,
                "rejected": 0,
                "lost": 0,
                "open": 0,
                "busy_s": 1.5,
                "handling_p95": None,
            }
        ],
        problems=[{"kind": "torn-line", "place": name, "count": 2, "example": name}],
    )


class Page(HTMLParser):
    """The tags of a page, and its text without scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._in: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._in and self._in.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._in):
            self.text += data

    def links(self) -> Iterator[str | None]:
        for _, attributes in self.tags:
            yield from (
                attributes[name] for name in ("src", "href") if name in attributes
            )


@pytest.fixture(scope="module")
def evil_page() -> str:
    return render(data(EVIL), DAY, DAY, lines=5)


def test_a_name_is_never_taken_for_a_tag(evil_page: str) -> None:
    """All names were chosen by somebody else: msg_ids by anyone at all."""
    harmless_page = render(data("x"), DAY, DAY, lines=5)
    page, harmless = Page(evil_page), Page(harmless_page)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in harmless.tags]
    assert "alert(1)" in page.text
    assert not any("onclick" in attributes for _, attributes in page.tags)
    for hidden in "\x00\u202e":
        # Plotly itself has some.
        assert evil_page.count(hidden) == harmless_page.count(hidden)


def test_a_name_is_escaped_for_the_figures_as_well(evil_page: str) -> None:
    """Plotly makes links and bold text of what looks like them."""
    calls = re.findall(r"Plotly\.newPlot\((.*?)\)\s*[};]", evil_page, re.DOTALL)
    figures = [call for call in calls if "evil" in call]
    assert figures
    for call in figures:
        assert "<a href" not in call
        assert "\\u003ca href" not in call


def test_the_page_needs_nothing_else(evil_page: str) -> None:
    """It is opened offline, and mailed to a customer."""
    assert set(Page(evil_page).links()) == {"data:,"}


def test_the_page_tells_what_was_found(evil_page: str) -> None:
    """First of all."""
    text = Page(evil_page).text
    assert "301 anomalies: 300 lost, 1 in-doubt." in text
    assert "The first 1 are shown." in text
    assert "Audit of 2026-01-05" in text
    assert "2 torn-line." in text


def test_the_heading_of_a_number_stands_above_it(evil_page: str) -> None:
    """On the right, as numbers do; else nobody knows which column is which."""
    for table in re.findall(r'<table class="list">.*?</table>', evil_page, re.DOTALL):
        heads = re.findall(r'<th class="(\w+)">', table)
        (row,) = re.findall(r"<tbody><tr>(.*?)</tr>", table, re.DOTALL)
        assert heads == re.findall(r'<td class="(\w+)">', row)


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(1, "second"), (15, "15 seconds"), (300, "5 minutes"), (7200, "2 hours")],
)
def test_an_axis_says_what_a_bar_stands_for_and_shows_it_whole(
    seconds: int, says: str
) -> None:
    """Of a single bar Plotly would show the microseconds around its middle."""
    found = data("x")
    found.bucket_s = seconds
    page = render(found, DAY, DAY, lines=5)
    assert f"messages per {says}" in page
    step = timedelta(seconds=seconds)
    ends = [f"{end:%Y-%m-%d %H:%M:%S}" for end in (MOMENT - step, MOMENT + 2 * step)]
    assert page.count(f'"range":{json.dumps(ends, separators=(",", ":"))}') == 3


def test_an_audit_of_nothing_has_a_page() -> None:
    """An operator who gets none does not know what to think."""
    text = Page(render(ReportData(), None, None, lines=0)).text
    assert "No anomaly: nothing lost, nothing doubled." in text
    assert "All journals are whole." in text
