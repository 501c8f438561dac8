"""Each listing of README and guide, twice in a row, with Prosody as Debian ships it.

What a reader changes for a server of his own is changed, and nothing else: host, port,
certificate and accounts. The server has Debian's configuration, with its limits and its
storage.
"""

import re
from pathlib import Path

import pytest

from listings import ELSEWHERE, NEVER_RUN, SESSIONS, SHOWN, Listing, listings
from new_machine import run_on_new_machine
from type_page import blocks
from waiting import PATIENCE

ROOT = Path(__file__).parents[2]
TYPE = ("python3", "tests/docs/type_page.py")
LISTINGS = listings()

#: For the machine's programs: an authority that they trust, and the accounts' password.
ENVIRONMENT = ("env", "SSL_CERT_FILE=/etc/ca/ca.pem", "XMPP_QOS_PASSWORD=…")
URLS = ("BASE=http://127.0.0.1:8080", "OTHER=http://127.0.0.1:8081")


def type_twice(folder: Path, words: tuple[str, ...], packages: tuple[str, ...]) -> None:
    """Type these pages; each of those after `--twice` must be typed to its end twice."""
    command = (*TYPE, *words)
    if "tests/docs/example_org.md" in words:
        command = (*ENVIRONMENT, *URLS, *command)
    printed = run_on_new_machine(
        folder, *command, timeout_s=580 * PATIENCE, packages=packages
    )
    print(printed)
    times = 1
    for word in words:
        if word.startswith("--"):
            times = 2 if word == "--twice" else 1
        else:
            assert printed.count(f"all of {word} in ") == times, word


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SESSIONS)
def test_each_listing_survives_its_second_run(tmp_path: Path, name: str) -> None:
    """A reader runs it again, on the same server and in the same folder."""
    session = SESSIONS[name]
    type_twice(tmp_path, session.words, session.packages)


@pytest.mark.long
@pytest.mark.timeout(240)
def test_one_listing_of_each_kind_survives_its_second_run(tmp_path: Path) -> None:
    """A command, a program in Python, a request by HTTP."""
    pages = ("docs/trust.md", "tests/docs/pages/small.md")
    setup = ("tests/docs/example_org.md", "tests/docs/pages/light.md")
    type_twice(tmp_path, (*setup, "--twice", *pages), ("aiohttp",))


def lines_of(text: str) -> list[str]:
    """The command lines of a listing, without comments and continuations."""
    joined = re.sub(r"\s*\\\n\s*", " ", text)
    lines = [line.partition(" #")[0].strip() for line in joined.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def is_run(listing: Listing) -> bool:
    """Whether the place that its row names has it."""
    where = ELSEWHERE[listing.key]
    text = (ROOT / where).read_text("utf-8")
    if where.endswith(".py"):
        return listing.page in text or Path(listing.key).name in text
    if listing.language in {"sh", "bash"}:
        typed = re.sub(r"\s*\\\n\s*", " ", text).replace("$id", "ID")
        return all(line in typed for line in lines_of(listing.text))
    if listing.language == "python":
        return listing.page == "README.md"  # word for word a file that is run
    return Path(listing.key).name in text


@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.key)
def test_each_listing_has_a_place_where_it_is_run(listing: Listing) -> None:
    """A new one is typed with its page, or gets a row in the table."""
    typed = {page for session in SESSIONS.values() for page in session.twice}
    if listing.language in NEVER_RUN or listing.key in SHOWN:
        assert listing.key not in ELSEWHERE
    elif listing.key in ELSEWHERE:
        assert is_run(listing), ELSEWHERE[listing.key]
    else:
        assert listing.language == "sh"
        assert listing.page in typed, f"no session types {listing.page}"


def test_the_table_has_no_row_without_a_listing() -> None:
    """Nor a page of ours that no session types."""
    keys = {listing.key for listing in LISTINGS}
    assert not (ELSEWHERE.keys() | SHOWN.keys()) - keys
    typed = {page for session in SESSIONS.values() for page in session.words}
    pages = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/docs/pages/*.md")}
    gate = {"tests/docs/pages/light.md", "tests/docs/pages/small.md"}
    assert pages - typed == gate


def test_what_is_typed_of_each_page_is_what_stands_there() -> None:
    """The finder of listings and the typist read the same blocks."""
    for session in SESSIONS.values():
        for page in session.twice:
            typed = [
                block.text
                for block in blocks((ROOT / page).read_text("utf-8"))
                if block.language == "sh"
            ]
            shown = [each.text for each in LISTINGS if each.page == page]
            if not page.startswith("tests/"):
                assert set(typed) <= set(shown), page
            assert typed, page
