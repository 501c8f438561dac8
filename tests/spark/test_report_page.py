"""The page in a browser: nothing is cut, at any width, however much there is."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from devtools import Browser, browser
from qos.audit.report import render
from qos.audit.report_data import ReportData
from report_samples import DAY, report

#: A JID may be as long.
LONG = "x" * 3000 + "@example.org"
NAME = "sensor-4711@building-seven.example.org/probe"

SAMPLES = {
    "nothing": ReportData(),
    "one of each": report("x"),
    "long names": report(LONG, rows=2, points=30),
    "all there can be": report(NAME, rows=20, points=96),
    "of a small fleet": report(NAME, rows=5, points=48),
    "all there can be, with long names": report(LONG, rows=20, points=96),
}


@cache
def drawn(sample: str) -> str:
    """The largest takes seconds."""
    return render(SAMPLES[sample], DAY, DAY, lines=5)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.parametrize(
    "sample", ["nothing", "one of each", "long names", "all there can be"]
)
def test_nothing_is_wider_than_the_window(
    sample: str, chromium: Browser, tmp_path: Path
) -> None:
    """A telephone is 360 pixels wide; whoever prints or reads in the dark sees it too."""
    file = tmp_path / "page.html"
    file.write_text(drawn(sample))
    page = chromium.page()
    for width in (360, 1280):
        for dark in (False, True):
            page.open(file, width=width, dark=dark)
            assert page.value("document.documentElement.scrollWidth") <= width
            # What is cut, or lies outside of what one can scroll to.
            assert page.value(_CUT) == []
            ink, ground = page.value(_COLOURS)
            assert (sum(ink) > sum(ground)) == dark
    assert page.console == []


_CUT = """
[...document.querySelectorAll("h1, h2, h3, p, li, b, span, summary, figcaption, svg, dd")]
  .filter(each => !each.closest(".scroll"))
  .filter(each => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1
    || each.getBoundingClientRect().left < 0)
  .map(each => each.outerHTML.slice(0, 200))
"""
_COLOURS = """
["color", "backgroundColor"].map(name =>
  getComputedStyle(document.body)[name].match(/[0-9]+/g).slice(0, 3).map(Number))
"""


def test_a_browser_would_tell_of_a_page_that_is_too_wide(
    chromium: Browser, tmp_path: Path
) -> None:
    """Or the test above could not fail."""
    file = tmp_path / "page.html"
    file.write_text(
        "<!DOCTYPE html><meta name=viewport content=width=device-width>"
        "<h1 style='width: 400px'>x</h1><script>no_such_thing()</script>"
    )
    page = chromium.page()
    page.open(file, width=360)
    assert page.value("document.documentElement.scrollWidth") > 360
    assert len(page.value(_CUT)) == 1
    assert "no_such_thing" in page.console[0]


@pytest.mark.parametrize(
    ("sample", "kilobytes"),
    [
        ("of a small fleet", 200),
        ("all there can be", 500),
        ("all there can be, with long names", 800),
    ],
)
def test_the_page_is_small(sample: str, kilobytes: int) -> None:
    """It is mailed, and opened on a telephone."""
    assert len(drawn(sample).encode()) < kilobytes * 1000
