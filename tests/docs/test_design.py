"""Citations of the design, in docstrings and comments: each has a target.

There are three forms. `docs/design/queue.md §4.5` is a number, or with one number a section;
`docs/rest-checklist.md C4 to C7` is rows of a table; `docs/promises.md#between-ours` is a
heading. In a module that names a page of rows in its own docstring, the docstrings of its
functions give the rows alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "design").glob("*.md"))
FILES = sorted(
    path
    for folder in ("qos", "plugins", "tests", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if path != Path(__file__)
)

_ROW = r"[A-Z]\d{1,2}\b"
_NUMBER = r"§\d+(?:\.\d+)?"
_AND = r"(?:,? and |, | to )"
#: A page, and what is cited of it.
CITATION = re.compile(
    r"\bdocs/(?P<page>[\w/-]+\.md)(?:#(?P<heading>[\w-]+)"
    rf"|,? (?P<targets>(?:{_NUMBER}|{_ROW})(?:{_AND}(?:{_NUMBER}|{_ROW}))*))"
)
ROWS = re.compile(rf"{_ROW}(?:{_AND}{_ROW})*")

#: The texts of others whose sections are cited by number.
_TEXTS = (
    r"RFC \d{4}|XEP-\d{4}|XML 1\.0|XML Schema [Pp]art 2|Jakarta Messaging|AMQP(?: 1\.0)?"
    r"|(?:[Mm]essaging|[Tt]ransport|[Ss]ecurity|[Tt]ypes)|of the standard,"
    r"|https://\S+|MUST;"
)
#: A citation of one of them: one section or several.
_OF_OTHERS = re.compile(rf"(?:{_TEXTS}) §[\d.-]*\d(?:(?:,? and |, | to |/)§[\d.-]*\d)*")
#: Citations by another form than those above.
OTHER_FORMS = (
    re.compile(r"(?<!docs/design/)\b[\w-]+\.md,? (?:§|row|section)"),
    re.compile(r"\b[Qq]ueue decisions\b|\b[Ii]ssue §|\bthe checklist\b|\bChecklist\b"),
    re.compile(rf"\b[Rr]ows? (?:{_ROW}|\d+ of|\d+\))|\([Rr]ow \d|\b[Ss]ection \d"),
)


#: Not by `ast` and `tokenize`: they take a minute for all modules.
_DOCSTRING = re.compile(r'^[ \t]*"""(.*?)"""', re.MULTILINE | re.DOTALL)
_COMMENTS = re.compile(r"(?:(?:^[ \t]*|  )#[^\n]*\n?)+", re.MULTILINE)


def texts(source: str) -> Iterator[str]:
    """The docstrings of a module and its comments, each in one line."""
    for docstring in _DOCSTRING.finditer(source):
        yield " ".join(docstring[1].split())
    for comments in _COMMENTS.finditer(_DOCSTRING.sub("", source)):
        yield " ".join(re.sub(r"(?<!\S)#:?", "", comments[0]).split())


def docstring_of(source: str) -> str:
    """The docstring of the module itself."""
    found = re.match(r'"""(.*?)"""', source, re.DOTALL)
    return " ".join(found[1].split()) if found else ""


@cache
def targets_of(page: str) -> frozenset[str]:
    """The targets of citations on a page of the guide: numbers, rows and headings."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in titles}
    numbers = re.findall(r"^\*\*(\d+\.\d+)\b", text, re.MULTILINE)
    sections = re.findall(r"^## (\d+)\. ", text, re.MULTILINE)
    rows = re.findall(rf"^\| ({_ROW}) \|", text, re.MULTILINE)
    return frozenset({*slugs, *(f"§{each}" for each in numbers + sections), *rows})


def wrong(source: str) -> list[str]:
    """The citations in a module that lead nowhere, or have another form."""
    found = []
    rows_of = re.search(
        r"The rows are those of docs/([\w-]+\.md)", docstring_of(source)
    )
    for text in texts(source):
        for cited in CITATION.finditer(text):
            names = [cited["heading"]] if cited["heading"] else []
            names += re.findall(rf"{_NUMBER}|{_ROW}", cited["targets"] or "")
            page = ROOT / "docs" / cited["page"]
            known = targets_of(cited["page"]) if page.is_file() else frozenset()
            found += [f"{cited[0]}: {each}" for each in names if each not in known]
        rest = CITATION.sub("", text)
        found += [bad[0] for form in OTHER_FORMS for bad in form.finditer(rest)]
        found += re.findall(r".{0,30}§.{0,9}", _OF_OTHERS.sub("", rest))
        begins = ROWS.match(rest) or re.search(rf"\(({ROWS.pattern})\)", rest)
        if rows_of is not None:
            letters = {each[0] for each in targets_of(rows_of[1]) if each[0].isupper()}
            found += [
                f"{rows_of[1]}: {each}"
                for each in re.findall(_ROW, rest)
                if each[0] in letters and each not in targets_of(rows_of[1])
            ]
        elif begins and not re.match(rf"{_ROW} [a-z]|C0, ", rest):
            found.append(f"rows of no page: {begins[0]}")
    return found


def test_each_citation_of_the_design_has_its_target() -> None:
    found = {
        str(path.relative_to(ROOT)): wrong(path.read_text("utf-8")) for path in FILES
    }
    assert {path: each for path, each in found.items() if each} == {}


@pytest.mark.parametrize(
    "text",
    [
        "docs/design/queue.md §9.",
        "docs/design/queue.md §1 and §1.99.",
        "See docs/design/queue.md\n§4.99.",
        "docs/design/nothing.md §1.",
        "docs/design/queue.md X1, X99.",
        "docs/rest-checklist.md C4 to C99.",
        "docs/promises.md#nothing.",
        "queue.md §1.",
        "docs/protocol.md §2.",
        "protocol.md, section 2.",
        "Queue decisions §4.",
        "§4: it waits.",
        "It waits (§4).",
        "Made of RFC 6120 §8, and of §4 of another.",
        "The rules of section 2.",
        "It waits (row 8).",
        "Rows R5 and P6 of the checklist.",
        "C4: it waits.",
        "It waits (U8).",
        "Issue §7: an error.",
    ],
)
@pytest.mark.parametrize("form", ['"""{}"""', 'def f():\n    """{}"""', "x = 1  # {}"])
def test_a_wrong_citation_is_found(text: str, form: str) -> None:
    if form.startswith("x"):
        text = text.replace("\n", "\n# ")
    assert wrong(form.format(text))


@pytest.mark.parametrize(
    "text",
    [
        "docs/design/queue.md §1 and §2.5, which decide.",
        "docs/design/queue.md X1, X3: a MUST.",
        "RFC 8305 §5 and RFC 2782; XEP-0060 §6.1, §7.2: both.",
        "docs/promises.md#between-ours.",
    ],
)
def test_a_right_citation_is_none(text: str) -> None:
    assert wrong(f'"""{text}"""') == []


def test_a_row_is_of_the_page_that_the_module_names() -> None:
    page = '"""The rows are those of docs/rest-checklist.md."""\n'
    assert wrong(page + 'def f():\n    """C4, C5: it waits."""') == []
    assert wrong(page + 'def f():\n    """C4, C55: it waits."""')


def test_citations_are_found() -> None:
    """Else the tests above would pass whatever the code says."""
    cited = {
        match["page"]
        for path in FILES
        for text in texts(path.read_text("utf-8"))
        for match in CITATION.finditer(text)
    }
    assert {f"design/{page.name}" for page in PAGES} <= cited
    assert "rest-checklist.md" in cited


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_numbers_of_a_page_have_no_gap_and_no_double(page: Path) -> None:
    text = page.read_text("utf-8")
    section, last = 0, 0
    for line in text.splitlines():
        if heading := re.match(r"## (\d+)\. ", line):
            section, last = section + 1, 0
            assert int(heading[1]) == section
        elif number := re.match(r"\*\*(\d+)\.(\d+)\b", line):
            # The steps of a settlement begin with 0.
            first = last == 0 and number[2] == "0"
            last = 0 if first else last + 1
            assert (int(number[1]), int(number[2])) == (section, last), line
    rows = re.findall(rf"^\| ({_ROW}) \|", text, re.MULTILINE)
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_numbers_and_files_that_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    known = targets_of(f"design/{page.name}")
    for group in re.findall(r"\((\d\.\d+(?:, \d\.\d+)*)\)", text):
        assert {f"§{each}" for each in group.split(", ")} <= known, group
    for name in re.findall(r"`((?:qos|plugins)/[\w/]+\.py)`", text):
        assert (ROOT / name).is_file(), name
