"""The page: complete, bounded, and without harmful content of others."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from qos.audit.report import render
from qos.audit.report_charts import TimeAxis, bands, bars
from qos.audit.report_data import Proof, ReportData, Rows
from qos.audit.report_headline import KINDS, REASONS
from qos.audit.tables.anomalies import KINDS as KINDS_FOUND
from qos.audit.tables.journal_coverage import REASONS as REASONS_FOUND
from report_samples import DAY, MOMENT, report

EVIL = "</script><script>alert(1)</script><a href='//evil'>\"&\x00\u202e"


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


def render_day(data: ReportData) -> str:
    return render(data, DAY, DAY, lines=5)


@pytest.fixture(scope="module")
def evil_page() -> str:
    return render_day(report(EVIL))


def test_a_name_is_never_taken_for_a_tag(evil_page: str) -> None:
    """All names were chosen by others: msg_ids by anyone."""
    page, harmless = Page(evil_page), Page(render_day(report("x")))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in harmless.tags]
    assert "alert(1)" in page.text
    assert not any("onclick" in attributes for _, attributes in page.tags)
    assert not set("\x00\u202e") & set(evil_page)


def test_the_page_allows_no_script_and_no_address(evil_page: str) -> None:
    """Should a name be taken for a tag after all, a browser does nothing with it."""
    tags = Page(evil_page).tags
    assert "script" not in {tag for tag, _ in tags}
    (policy,) = (
        attributes["content"] or ""
        for _, attributes in tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.split("; ")[0] == "default-src 'none'"
    assert "script-src" not in policy


def test_the_page_needs_nothing_else(evil_page: str) -> None:
    """It is opened offline, and mailed to a customer."""
    assert set(Page(evil_page).links()) == {"data:,"}


def test_the_page_tells_what_was_found(evil_page: str) -> None:
    """First of all."""
    text = Page(evil_page).text
    assert "301 anomalies: 300 lost, 1 in-doubt." in text
    assert "The first 1 are shown." in text
    assert "Audit of 2026-01-05" in text
    assert "2 torn-line" in text
    assert "Rests on the word of a@x/1, b@x/1" in " ".join(text.split())


def test_beside_the_verdict_stands_how_far_it_reaches(evil_page: str) -> None:
    """An audit that has only half of the journals has judged half of the traffic."""
    text = Page(evil_page).text
    assert "99.50 % provable: 1,990 of 2,000 messages, of either side" in text
    assert "97.22 % counted at both ends: 280 of 288 windows" in text
    assert "10 no-journal the device has no journal here" in text
    assert "3 files not closed, not judged" in text
    assert "12 lines missing" in text


def test_the_queues_and_the_day_before_are_at_the_top(evil_page: str) -> None:
    """Waiting items are as urgent as lost ones."""
    top = Page(evil_page).text.partition("Anomalies")[0]
    words = " ".join(top.split())
    for says in ("5queue items", "1dead", "1still there", "25 holdest still there"):
        assert says in words
    assert "2026-01-05 against 2026-01-04" in words
    assert "messages1,0002,000" in words
    assert "+100 %" in words


@pytest.mark.parametrize(
    ("data", "kind", "says"),
    [
        (ReportData(), "nothing", "no message is in the lines that were read."),
        (ReportData(files_open=3), "nothing", "were read; 3 files not closed."),
        (
            ReportData(outcomes={"delivered": 300}, proof=Proof(0, 300)),
            "nothing",
            "the journals prove nothing of 300 messages.",
        ),
        (
            ReportData(outcomes={"delivered": 9}, proof=Proof(7, 2, {"hole": 2})),
            "partly",
            "No anomaly among 7 messages that could be judged; 2 not proven.",
        ),
        (
            ReportData(outcomes={"delivered": 9}, proof=Proof(7, 2, {"no-journal": 2})),
            "good",
            "No anomaly: nothing lost, nothing doubled.",
        ),
        (ReportData(outcomes={"open": 1}), "good", "No anomaly"),
        (ReportData(anomaly_counts={"orphaned": 1}), "bad", "1 anomaly: 1 orphaned."),
    ],
)
def test_only_what_was_judged_is_green(data: ReportData, kind: str, says: str) -> None:
    """An operator looks at the colour; without a verdict it must not be green."""
    page = Page(render_day(data))
    (shown,) = (
        attributes["class"]
        for _, attributes in page.tags
        if (attributes.get("class") or "").startswith("verdict ")
    )
    assert shown == f"verdict {kind}"
    assert says in page.text


def test_each_reason_is_explained() -> None:
    """The words of the tables are short."""
    assert set(REASONS) == set(REASONS_FOUND)
    assert set(KINDS) == set(KINDS_FOUND)


def test_no_share_that_is_less_than_all_is_called_all() -> None:
    """One message of a million is one too many for 100 %."""
    proof = Proof(10**6, 1, {"hole": 1})
    data = ReportData(outcomes={"delivered": 10**6}, proof=proof)
    assert "99.99 % provable" in Page(render_day(data)).text
    data.proof = replace(proof, unproven=0, reasons={})
    assert "100 % provable" in Page(render_day(data)).text


def test_the_heading_of_a_number_stands_above_it(evil_page: str) -> None:
    """On the right, like numbers: otherwise the columns could be confused."""
    tables = re.findall(r"<table>.*?</table>", evil_page, re.DOTALL)
    assert len(tables) > 8
    for table in tables:
        assert table.startswith("<table><caption>")
        heads = re.findall(r'<th scope="col"(?: class="(\w+)")?>', table)
        first = re.findall(r'<th scope="row"(?: class="(\w+)")?>', table)
        cells = re.findall(r'<td(?: class="(\w+)")?>', table)
        # A heading is a text, and a cell a number, if there is no other class.
        below = [head or "text" for head in heads[1:]]
        assert [cell or "number" for cell in cells] == below * len(first)
        assert set(first) == {heads[0]}


# -- charts ----------------------------------------------------------------

STEP = timedelta(seconds=900)


def points(*places: int) -> Rows:
    return [
        {"moment": MOMENT + n * STEP, "p50": 1.0, "p95": 2.0, "messages": 3}
        for n in places
    ]


def drawn(image: str, colour: str) -> list[list[float]]:
    """The left and right ends of each path of a colour, from left to right."""
    found = []
    for path in ET.fromstring(image).iter("path"):  # noqa: S314 - our own
        if f"var(--{colour})" in path.attrib["style"]:
            xs = re.findall(r"[ML] ([0-9.]+) ", path.attrib["d"])
            found.append([float(x) for x in xs])
    return sorted([min(xs), max(xs)] for xs in found)


def test_a_gap_is_a_gap() -> None:
    """A line across it would suggest messages, and a latency."""
    axis = TimeAxis(MOMENT, MOMENT + 9 * STEP, 900)
    image = bands(points(0, 1, 3, 5, 6, 7), axis, "x")
    first, dot, last = drawn(image, "series")
    bucket = first[1] - first[0]
    assert dot[0] == dot[1]
    assert last[1] - last[0] == pytest.approx(2 * bucket, abs=0.2)
    assert first[1] + 2 * bucket == pytest.approx(dot[0], abs=0.2)
    assert len(drawn(image, "band")) == 3


def test_a_lone_bar_is_seen_whole() -> None:
    """It stands for the time that begins there, with some room on both sides."""
    axis = TimeAxis(MOMENT, MOMENT, 900)
    ((left, right),) = drawn(bars(points(0), "messages", axis, "x"), "series")
    ((begin, end),) = {tuple(each) for each in drawn(bands([], axis, "x"), "rule")}
    assert (end - begin) / 2 == pytest.approx(right - left, abs=0.5)
    assert begin < left < right < end


def test_each_chart_can_be_read_without_seeing_it(evil_page: str) -> None:
    """In words, and as a table of its numbers."""
    figures = re.findall(r"<figure>.*?</figure>", evil_page, re.DOTALL)
    assert len(figures) == 3
    for figure in figures:
        ((role, label),) = re.findall(
            r'<svg .*?role="(.*?)" aria-label="(.*?)"', figure
        )
        assert role == "img"
        assert "at 2026-01-05 00:00" in label
        assert '<th scope="row" class="word">2026-01-05 00:00</th>' in figure
    assert "p95 at most 2.000 s" in Page(evil_page).text


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(1, "second"), (15, "15 seconds"), (300, "5 minutes"), (7200, "2 hours")],
)
def test_a_chart_says_what_a_bar_stands_for(seconds: int, says: str) -> None:
    """A hundred messages in a second are more than in an hour."""
    found = report("x")
    found.bucket_s = seconds
    assert f"Messages per {says}," in render_day(found)


def test_an_audit_of_nothing_has_a_page() -> None:
    """Without a page, an operator would not know the reason."""
    text = Page(render(ReportData(), None, None, lines=0)).text
    assert "Nothing to judge" in text
    assert "All journals are whole." in text


def test_what_took_less_than_nothing_is_left_out_of_a_chart() -> None:
    """A former audit may have such a latency, by a clock that was wrong. Before, no report
    was written, and the audit failed.
    """
    rows = points(0, 1, 3)
    for row in rows[:2]:
        row.update(p50=-1.6e9, p95=-1.5e9)
    image = bands(rows, TimeAxis(MOMENT, MOMENT + 9 * STEP, 900), "x")
    assert len(drawn(image, "series")) == 1
