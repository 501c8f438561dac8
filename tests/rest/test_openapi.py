"""The description of the URLs: as the routes are, and as a stranger's tests find it.

The rows are those of docs/rest-checklist.md.
"""

import asyncio
import json
import subprocess
import time
from itertools import chain
from pathlib import Path

import pytest

from qos.rest.routes import PATHS, ROUTES, openapi
from rest_bench import basic, rest
from send_bench import sending
from waiting import LIMIT_S

SCHEMATHESIS = (
    Path(__file__).parents[2] / ".venv" / "schemathesis" / "bin" / "schemathesis"
)

#: A queue that is there, a time to come, and no waits.
CONFIG = f"""
[parameters]
"query.expiration" = {int(1000 * time.time()) + 3_600_000}
"path.node" = "orders"
"path.jid" = "lamp@localhost%2F1"
"header.X-RS-Wait" = "0"
"header.Prefer" = "wait=0"

[[operations]]
include-path-regex = "^/topics/"
[operations.parameters]
"path.node" = "prices"
"path.queue" = "audit"
"""


def test_each_route_is_described_and_nothing_else() -> None:
    """R7."""
    paths = json.loads(openapi())["paths"]
    assert paths.keys() == {each.template for each in PATHS.values()}
    assert PATHS.keys() == ROUTES.keys()
    for name, route in ROUTES.items():
        described = dict(paths[PATHS[name].template])
        parameters = described.pop("parameters")
        assert [each["name"] for each in parameters] == PATHS[name].variables
        assert described.keys() == {each.lower() for each in route.methods}
        for operation in described.values():
            assert operation["summary"] == route.summary
        of_all = (each.get("parameters", []) for each in described.values())
        asked = {each["name"] for each in chain(*of_all) if each["in"] == "query"}
        assert asked == set(route.query)


#: That each answer is one of those described, with its content and its headers.
CHECKS = (
    "not_a_server_error,status_code_conformance,unsupported_method,"
    "content_type_conformance,response_headers_conformance,response_schema_conformance"
)

#: What has a test of its own; and what topics have like queues.
ELSEWHERE = "^/(send|hornetq)|^/topics/[^/]+/(messages|once|batch)"


async def schemathesis(folder: Path, web: int, *words: str) -> None:
    """Ask for the routes that are chosen; what it finds is an error."""
    assert SCHEMATHESIS.exists(), "make .venv/schemathesis.stamp"
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG)
    process = await asyncio.create_subprocess_exec(
        *(SCHEMATHESIS, "--config-file", config, "run"),
        f"http://127.0.0.1:{web}/openapi.json",
        *("--header", f"Authorization: {basic('alice')}", "--seed", "1"),
        *("--phases", "coverage,fuzzing", "--max-examples", "5"),
        *("--checks", CHECKS, "--request-timeout", f"{LIMIT_S:g}"),
        *words,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), 5 * LIMIT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, out.decode()


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_no_request_of_schemathesis_is_answered_by_an_undocumented_status(
    tmp_path: Path,
) -> None:
    """Nor by an error of ours; it makes some hundred requests out of the description."""
    async with rest(tmp_path) as bench:
        await bench.create("orders")
        await bench.create("prices", node_type="topic")
        await schemathesis(tmp_path, bench.web, "--exclude-path-regex", ELSEWHERE)
        found = await bench.items("orders")
    # It has come to the core: it has posted, and it has taken what it has posted.
    assert any(each.token for each in found.values())


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_schemathesis_speaks_as_hornetq_s_clients(tmp_path: Path) -> None:
    """The same for the URLs of the dialect."""
    async with rest(tmp_path) as bench:
        await bench.create("orders")
        await schemathesis(tmp_path, bench.web, "--include-path-regex", "^/hornetq")
        assert await bench.items("orders")


@pytest.mark.timeout(300)
async def test_schemathesis_sends_to_a_device(tmp_path: Path) -> None:
    """The same for the URLs that only a service with a relay has."""
    async with sending(tmp_path) as bench:
        await schemathesis(tmp_path, bench.web, "--include-path-regex", "^/send")
        relay = bench.rest.relay
        assert relay is not None
        # It has come to the core.
        assert relay._endpoint.outbox.outstanding
