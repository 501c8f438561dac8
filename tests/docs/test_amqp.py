"""The listings of the page on AMQP, with real clients."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from amqp_bench import DOMAIN, gateway, rhea_folder
from proxy import LinkFault, Proxy
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import SetAffiliations
from qos.testing.ports import free_ports
from qos.users import hashed
from waiting import limit

CODE = Path(__file__).parents[2] / "docs" / "code"


async def output(*command: str | Path, **environment: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    async with limit():
        out, err = await process.communicate()
    assert process.returncode == 0, err
    return out.decode()


#: Debian has an older proton, for its own Python.
DEBIAN = "/usr/bin/python3"


@pytest.mark.parametrize("python", [sys.executable, DEBIAN])
async def test_the_python_of_the_guide(tmp_path: Path, python: str) -> None:
    async with gateway(tmp_path) as bench:
        await bench.create("orders")
        url = f"amqp://alice@127.0.0.1:{bench.port}"
        program = CODE / "amqp_orders.py"
        for _ in range(2):
            out = await output(python, program, url, "orders", PASSWORD="secret")  # noqa: S106
            assert out.splitlines() == [f"order {n} 0" for n in range(3)]


async def test_the_javascript_of_the_guide(tmp_path: Path) -> None:
    node = shutil.which("node")
    assert node is not None
    async with gateway(tmp_path) as bench:
        await bench.create("orders")
        jid = f"shop@{DOMAIN}"
        await bench.ask(SetAffiliations("orders", {jid: Affiliation.OWNER}))
        bench.users_file.write_text(f"shop:{hashed('secret')}\n")
        for _ in range(2):
            out = await output(
                *(
                    node,
                    CODE / "amqp_orders.js",
                    "localhost",
                    str(bench.port),
                    "orders",
                ),
                NODE_PATH=str(rhea_folder()),
                PASSWORD="secret",  # noqa: S106 - of the bench
            )
            assert sorted(out.splitlines()) == [
                "on the disk of the service",
                "order 1 0",
            ]


@pytest.mark.parametrize("language", ["python", "javascript"])
async def test_a_listing_whose_connection_is_cut_ends(
    tmp_path: Path, language: str
) -> None:
    """While it waits for its messages, which another consumer has."""
    node = shutil.which("node")
    assert node is not None
    async with gateway(tmp_path) as bench, Proxy(bench.port) as proxy, limit():
        await bench.create("orders")
        users = (f"{name}:{hashed('secret')}\n" for name in ("alice", "shop"))
        bench.users_file.write_text("".join(users))
        shop = {f"shop@{DOMAIN}": Affiliation.OWNER}
        await bench.ask(SetAffiliations("orders", shop))
        stays = asyncio.Event()
        other = asyncio.create_task(
            bench.rhea("receive", node="orders", outcome="nothing", stays=stays)
        )
        await bench.publish("orders", "<x/>")
        await bench.until_locked("orders")
        command: dict[str, tuple[str | Path, ...]] = {
            "python": (
                *(sys.executable, CODE / "amqp_orders.py"),
                *(f"amqp://shop@127.0.0.1:{proxy.port}", "orders"),
            ),
            "javascript": (
                *(node, CODE / "amqp_orders.js", "localhost", str(proxy.port)),
                "orders",
            ),
        }
        program = await asyncio.create_subprocess_exec(
            *command[language],
            env=os.environ | {"NODE_PATH": str(rhea_folder()), "PASSWORD": "secret"},
            stderr=asyncio.subprocess.PIPE,
        )
        await bench.until_locked("orders", 4 if language == "python" else 2)
        await proxy.inflict(LinkFault.CUT, 0)
        _, said = await program.communicate()
        assert program.returncode == 1
        assert re.search("(?i)connection.*(lost|disconnected|closed)", said.decode())
        stays.set()
        await other


async def test_the_javascript_of_the_guide_ends_with_its_connection() -> None:
    """rhea would connect again and again, and nobody would see why nothing comes."""
    node = shutil.which("node")
    assert node is not None
    (port,) = free_ports(1)
    program = await asyncio.create_subprocess_exec(
        *(node, CODE / "amqp_orders.js", "localhost", str(port), "orders"),
        env={**os.environ, "NODE_PATH": str(rhea_folder()), "PASSWORD": "secret"},
        stderr=asyncio.subprocess.PIPE,
    )
    async with limit():
        _, said = await program.communicate()
    assert program.returncode == 1
    assert b"the connection is lost" in said


def test_each_row_of_the_checklist_has_a_test_or_is_open() -> None:
    """And the tests that it names are there."""
    page = (CODE.parent / "amqp-checklist.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in page.splitlines()
        if line.startswith("| ") and not line.startswith(("| §", "| part"))
    ]
    assert len(rows) > 30
    sources = "".join(
        path.read_text() for path in (CODE.parents[1] / "tests").rglob("test_*.py")
    )
    for row in rows:
        named = re.findall("`(test_[a-z0-9_]+)`", row[-1])
        assert named or "open" in "".join(row), row
        for name in named:
            assert f"def {name}(" in sources, name
