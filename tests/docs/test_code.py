"""The code of the guide does what the guide says; other files of it have tests elsewhere."""

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from slixmpp import ComponentXMPP

from qos import connect
from qos.testing import LoopbackServer, friends, logged_in
from qos.testing.clients import close, new_client
from qos.testing.processes import Child
from waiting import LIMIT_S
from xep_qos import XEP_QOS, json_of

ROOT = Path(__file__).parents[2]
CODE = ROOT / "docs" / "code"


def names_in(file: str) -> dict[str, object]:
    names: dict[str, object] = {"__name__": file}
    exec((CODE / file).read_text(), names)  # noqa: S102 - our own guide
    return names


async def test_a_client_of_ones_own_sees_how_a_message_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    async with friends("me", "lamp") as server, logged_in(server, "me") as me:
        client = new_client("lamp@localhost/1", "secret", {})
        set_up = names_in("own_client.py")["set_up"]
        assert callable(set_up)
        set_up(client)
        client.connect(server.host, server.port)
        try:
            await XEP_QOS.of(me).send("lamp@localhost/1", "on")
        finally:
            await close(client)
    assert capsys.readouterr().out == "on: assured\n"


async def test_a_gateway_speaks_for_its_lamps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To each lamp and from each; what is told of a lamp is told when it is switched."""
    monkeypatch.chdir(tmp_path)
    switched: list[tuple[str, str]] = []

    async def switch(lamp: str, value: str) -> None:
        await asyncio.sleep(0.05)
        switched.append((lamp, value))

    named = names_in("gateway.py")
    set_up, report = named["set_up"], named["report"]
    assert callable(set_up)
    assert callable(report)
    domain = "gate.localhost"
    async with (
        friends("me", components={domain: "secret"}) as server,
        connect(
            "me@localhost/1",
            "secret",
            store="memory:",
            trust=[f"@{domain}"],
            host=server.host,
            tls="off",
            port=server.port,
        ) as me,
    ):
        gate = ComponentXMPP(  # type: ignore[no-untyped-call]  # slixmpp's lack
            domain, "secret", server.host, server.component_port
        )
        gate.enable_direct_tls = False
        set_up(gate, switch, trust="@localhost")
        messages, reports = me.messages(), []
        gate.connect(server.host, server.component_port)
        try:
            await gate.wait_until("session_start", timeout=LIMIT_S)
            for lamp in ("kitchen", "hall"):
                await me.send(f"{lamp}@{domain}/1", "on")
                assert switched[-1] == (lamp, "on")
                told = asyncio.create_task(report(gate, lamp, "me@localhost/1", 7))
                said = await anext(messages)
                assert said["from"] == f"{lamp}@{domain}/1"
                assert json_of(said) == {"watts": 7}
                reports.append(told)
            await messages.aclose()
            await asyncio.gather(*reports)
        finally:
            await close(gate)


async def one_life(folder: Path, server: LoopbackServer) -> asyncio.subprocess.Process:
    """The consumer, ready."""
    process = await asyncio.create_subprocess_exec(
        *(*Child.mortal(), sys.executable),
        *(CODE / "consumer.py", "log@localhost/1", str(server.port)),
        cwd=folder,
        env=os.environ | {"XMPP_QOS_PASSWORD": "secret"},
        stdout=PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


async def test_the_consumer_keeps_each_reading_once(tmp_path: Path) -> None:
    """Whenever it is killed; its sender learns that all were delivered."""
    quick = {"xep_qos": {"retry_first_s": 0.1, "retry_max_s": 0.5}}
    async with (
        friends("sensor", "log") as server,
        logged_in(server, "sensor", quick) as sensor,
    ):
        life = await one_life(tmp_path, server)
        try:
            sending = [
                asyncio.create_task(
                    XEP_QOS.of(sensor).send("log@localhost/1", str(number))
                )
                for number in range(40)
            ]
            await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
            life.kill()
            await life.wait()
            life = await one_life(tmp_path, server)
            await asyncio.gather(*sending)
        finally:
            life.kill()
            await life.wait()
    database = sqlite3.connect(tmp_path / "readings.db")
    rows = database.execute("SELECT device, value FROM reading").fetchall()
    database.close()
    assert sorted(rows) == sorted(
        ("sensor@localhost", str(number)) for number in range(40)
    )


def test_the_test_of_the_guide_passes() -> None:
    """By the settings that the guide names."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-c", os.devnull, "-o", "asyncio_mode=auto", CODE / "test_lamp.py"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=CODE,
    )
    assert "1 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("file", sorted(path.name for path in CODE.glob("*.*")))
def test_each_file_of_code_is_shown_and_tested(file: str) -> None:
    """A new one gets its test here, or is typed by a page."""
    pages = "".join(page.read_text() for page in ROOT.glob("docs/*.md"))
    tests = "".join(test.read_text() for test in ROOT.glob("tests/**/test_*.py"))
    # A program of the guide may read it.
    tests += "".join(code.read_text() for code in CODE.glob("*.py"))
    assert f"{{literalinclude}} code/{file}" in pages
    typed = re.search(rf"^(?:cp|python) docs/code/{file}\b", pages, re.MULTILINE)
    assert re.search(rf'"(docs/code/)?{re.escape(file)}"', tests) or typed


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *ROOT.glob("docs/*.md")], ids=lambda page: page.name
)
def test_each_example_that_a_page_names_exists(page: Path) -> None:
    for name in re.findall(r"\bexamples/(\w+\.\w+)", page.read_text()):
        assert (ROOT / "examples" / name).exists()
