"""The commands of the guide, typed word for word on what looks like a new machine."""

from pathlib import Path

import pytest

from new_machine import run_on_new_machine
from waiting import PATIENCE

TYPE = ("python3", "tests/docs/type_page.py")


@pytest.mark.long
@pytest.mark.timeout(200)
def test_ten_minutes_with_prosody(tmp_path: Path) -> None:
    """From an empty machine to assured messages, a device as a service and a queue."""
    page = "docs/ten-minutes.md"
    printed = run_on_new_machine(tmp_path, *TYPE, page, timeout_s=190 * PATIENCE)
    assert f"all of {page}" in printed
    print(printed)


@pytest.mark.long
@pytest.mark.timeout(200)
def test_the_readme_and_the_pages_on_commands(tmp_path: Path) -> None:
    """With accounts at example.org, which the readers have at their own server."""
    pages = ("README.md", "docs/command.md", "docs/queues.md", "docs/trust.md")
    setup, programs = "tests/docs/example_org.md", "tests/docs/programs.md"
    command = ("env", "SSL_CERT_FILE=/etc/ca/ca.pem", *TYPE)
    words = (*command, setup, pages[0], programs, *pages[1:])
    printed = run_on_new_machine(tmp_path, *words, timeout_s=190 * PATIENCE)
    for page in pages:
        assert f"all of {page}" in printed
    print(printed)
