"""The pages on HTTP: their commands are typed, and their checklist is complete."""

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest

from amqp_bench import DOMAIN
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import SetAffiliations
from qos.users import hashed
from rest_bench import RestBench, rest
from type_page import blocks
from waiting import LIMIT_S

DOCS = Path(__file__).parents[2] / "docs"

#: The rows of the design, by their letters.
ROWS = {"R": 7, "P": 14, "C": 14, "U": 9, "T": 1, "H": 16, "S": 9}


async def prepare(bench: RestBench, *nodes: str) -> None:
    """Have the user of the guide, and these nodes with its rights."""
    bench.users_file.write_text(f"shop:{hashed('secret')}\n")
    for node in nodes:
        if bench.engine.node_type(node) is None:
            await bench.create(node)
        rights = {f"shop@{DOMAIN}": Affiliation.PUBLISHER}
        await bench.ask(SetAffiliations(node, rights))


async def type_into_a_shell(page: str, folder: Path, **ports: int) -> None:
    """Type the commands of a page, and compare what they print with what it shows.

    Args:
        page: its file.
        folder: to type them in.
        ports: of the services, by the variables of the page that have their URLs.
    """
    typed, wanted = "set -o pipefail\n", ""
    for block in blocks((DOCS / page).read_text()):
        if block.language == "sh":
            typed += block.text
        else:
            wanted += block.text
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    process = await asyncio.create_subprocess_exec(
        *("/bin/bash", "--norc", "-e", "-c", typed),
        cwd=folder,
        env=os.environ | urls,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    async with asyncio.timeout(2 * LIMIT_S):  # they are many
        out, _ = await process.communicate()
    printed = out.decode().replace("\r", "")
    assert process.returncode == 0, printed
    # A reader sees each of them alone.
    assert re.fullmatch(re.escape(wanted).replace("…", ".*"), printed), printed


async def test_the_curl_of_the_guide(tmp_path: Path) -> None:
    """In one shell, as a reader would; what is printed is what the page shows."""
    (tmp_path / "other").mkdir()
    async with (
        rest(tmp_path, push=["127.0.0.1"]) as bench,
        rest(tmp_path / "other") as other,
    ):
        await bench.create("prices", node_type="topic")
        await prepare(bench, "orders", "questions", "replies", "bills", "prices")
        await prepare(other, "bills")
        await type_into_a_shell("rest.md", tmp_path, BASE=bench.web, OTHER=other.web)


@pytest.mark.parametrize("page", ["rest.md", "rest-send.md"])
@pytest.mark.parametrize(
    "other",
    [
        'Content-Type: text/plain; a="<http://evil>; rel="create-next"',
        'Content-Language: <http://evil/>; rel="create-next"',
        'Link: <http://evil/>; rel="create-next"',
        'Link: <@evil/>; rel="create-next"',
        'x Link: </evil>; rel="create-next"',
    ],
)
def test_the_function_of_the_guide_finds_the_links_of_the_service_only(
    page: str, other: str
) -> None:
    """The next request goes there, with the password; a publisher chooses other headers."""
    (function,) = re.findall(r"^link\(\) .*", (DOCS / page).read_text(), re.MULTILINE)
    ours = 'Link: </a>; rel="self", </next>; rel="create-next", </b>; rel="up"'
    for head in (f"{other}\n{ours}\n", f"{ours}\n{other}\n", f"{ours.lower()}\n"):
        found = subprocess.run(
            ("/bin/bash", "--norc", "-c", f"{function}\nlink create-next"),
            input=head,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
        assert found.stdout == "/next\n", head


async def test_the_curl_of_the_page_on_hornetq(tmp_path: Path) -> None:
    """Likewise."""
    async with rest(tmp_path) as bench:
        await prepare(bench, "orders")
        await type_into_a_shell("rest-hornetq.md", tmp_path, BASE=bench.web)


def test_each_row_of_the_checklist_of_rest_has_a_test_or_is_open() -> None:
    """And the tests that it names are there; no row is missing."""
    rows = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in (DOCS / "rest-checklist.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| rule")
    ]
    sources = "".join(
        path.read_text() for path in (DOCS.parent / "tests").rglob("test_*.py")
    )
    for row in rows:
        assert len(row) == 4, row
        named = re.findall("`(test_[a-z0-9_]+)`", row[-1])
        assert named or row[2] == "open", row
        for name in named:
            assert f"def {name}(" in sources, name
    names = [row[0] for row in rows if row[0]]
    expected = [
        f"{letter}{n}" for letter, most in ROWS.items() for n in range(1, most + 1)
    ]
    assert names == expected
