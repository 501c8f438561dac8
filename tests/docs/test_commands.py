"""The commands that the guide shows are commands that there are."""

import re
import shlex
from pathlib import Path

import pytest

from qos.cli.entry import COMMANDS, command_named

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")))


def commands_in(page: Path) -> list[str]:
    """The lines that call `xmpp-qos`, and those in running text that have an option."""
    text = page.read_text().replace("\\\n", " ")
    blocks = "".join(re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    lines = [
        re.sub(r" >.*", "", line.partition("xmpp-qos ")[2])
        for line in blocks.splitlines()
    ]
    lines += re.findall(r"`xmpp-qos ([^`]* --[^`]*)`", text)
    return [line for line in lines if line.partition(" ")[0] in COMMANDS]


@pytest.mark.parametrize(
    ("page", "line"),
    dict.fromkeys((page.name, line) for page in PAGES for line in commands_in(page)),
)
def test_a_command_of_the_guide_can_be_parsed(page: str, line: str) -> None:
    """With all its options: the pages that are not typed as a whole, too."""
    name, *words = shlex.split(line, comments=True)
    if "--help" in words:
        return
    command = command_named(name)
    if "--config" in words:  # the file is not there
        where = words.index("--config")
        del words[where : where + 2]
    command.parser(f"xmpp-qos {name}").parse_args(
        [word.replace("…", "1") for word in words]
    )


def test_the_page_on_the_command_lists_all_of_them() -> None:
    """Each command that there is, and none that is not there."""
    page = (ROOT / "docs" / "command.md").read_text().partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*`) \|", page, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(COMMANDS)


def test_the_readme_leads_to_each_page_of_the_guide() -> None:
    """Whoever reads the texts in the repository has no other table of contents.

    The pages left out have a link in a page of the table, or are made from other files.
    """
    pages = {path.stem for path in ROOT.glob("docs/*.md")}
    table = (ROOT / "README.md").read_text()
    named = set(re.findall(r"\(docs/([\w-]+)\.md[#)]", table))
    assert pages - named == {
        *("amqp-checklist", "architecture", "batches", "changelog", "index", "limits"),
        "rest-checklist",
    }


def test_what_the_page_on_trouble_quotes_is_said_somewhere() -> None:
    """Whoever looks for a text that he has seen finds it."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    sources = "".join(
        re.sub(r'"\s+f?"', "", path.read_text())
        for root in ("qos", "plugins")
        for path in (ROOT / root).rglob("*.py")
    )
    quoted = [
        part.strip(" .…")
        for heading in re.findall("^## (.*)$", page, re.MULTILINE)
        for phrase in re.findall('"(.*?)"', heading)
        for part in phrase.split("…")
    ]
    assert len(quoted) > 15
    assert not [phrase for phrase in quoted if phrase not in sources]


def test_there_are_many() -> None:
    """Else the test above would look for them in a wrong way."""
    assert sum(len(commands_in(page)) for page in PAGES) > 40
