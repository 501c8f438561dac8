"""A real server for every test in this folder.

`from clients import log_in` and the like work because the folder is on pytest's
`pythonpath` and in mypy's `mypy_path`.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from qos.testing.prosody import MakeProsody, Prosody, mutual
from queue_service import Served, own_server, served

HERE = Path(__file__).parent

ACCOUNTS = {user: f"secret of {user}" for user in ("alice", "bob", "carol", "mallory")}
# Mallory is a stranger to all others.
ROSTERS = mutual(("alice", "bob"), ("alice", "carol"))
COMPONENTS = {"comp.localhost": "secret of comp"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this folder, and only these."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xmpp)


@pytest.fixture
async def make_prosody(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[MakeProsody]:
    """Start servers with the test's own options; they end with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(**options: object) -> Prosody:
            settings: dict[str, object] = {
                "accounts": ACCOUNTS,
                "rosters": ROSTERS,
                "components": COMPONENTS,
            }
            folder = tmp_path_factory.mktemp("prosody")
            # Any options of `Prosody`; a wrong one fails there.
            prosody = Prosody(folder, **{**settings, **options})  # type: ignore[arg-type]
            return await stack.enter_async_context(prosody)

        yield make


@pytest.fixture
async def prosody(make_prosody: MakeProsody) -> Prosody:
    """The usual server: see the constants of this file."""
    return await make_prosody()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Prosody]:
    """A server for all tests of a module, which share a loop: see `queues`."""
    async with own_server(tmp_path_factory.mktemp("prosody")) as prosody:
        yield prosody


@pytest_asyncio.fixture(loop_scope="module")
async def queues(server: Prosody, tmp_path: Path) -> AsyncIterator[Served]:
    """A queue service on it, of the test's own.

    The test, too, has to run in the loop of its module.
    """
    async with served(server, tmp_path) as service:
        yield service
