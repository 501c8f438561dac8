"""The page on HTTP: its commands are typed, and its checklist is complete."""

import asyncio
import os
import re
import subprocess
from pathlib import Path

from amqp_bench import DOMAIN
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import SetAffiliations
from qos.users import hashed
from rest_bench import RestBench, rest
from type_page import blocks

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
        typed, wanted = "set -o pipefail\n", ""
        for block in blocks((DOCS / "rest.md").read_text()):
            if block.language == "sh":
                typed += block.text
            else:
                wanted += block.text
        process = await asyncio.create_subprocess_exec(
            *("/bin/bash", "--norc", "-e", "-c", typed),
            cwd=tmp_path,
            env=os.environ
            | {
                "BASE": f"http://127.0.0.1:{bench.web}",
                "OTHER": f"http://127.0.0.1:{other.web}",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    printed = out.decode().replace("\r", "")
    assert process.returncode == 0, printed
    # A reader sees each of them alone.
    assert re.fullmatch(re.escape(wanted).replace("…", ".*"), printed), printed


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
