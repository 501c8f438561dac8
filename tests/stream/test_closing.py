"""The end of a stream: nothing of it is left that waits for ever."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from slixmpp.exceptions import IqTimeout
from slixmpp.stanza import Iq

from qos.testing import friends, logged_in
from waiting import limit


async def asked(reason: list[str], request: Iq) -> None:
    """Ask, as slixmpp's plugins do: nobody has a reference to the task."""
    try:
        await request.send()  # type: ignore[no-untyped-call]  # slixmpp's lack
    except IqTimeout:
        reason.append("timed out")


async def test_a_request_without_an_answer_ends_with_its_stream(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As one whose answer a bad link has lost. Before, its task was left without anything
    that could wake it, and asyncio said later: Task was destroyed but it is pending!
    """
    reason: list[str] = []

    def drop(_stanza: Any) -> None:
        return None

    async with (
        friends("alice", "bob") as server,
        limit(),
        logged_in(server, "bob/b") as bob,
    ):
        bob.add_filter("in", drop)
        async with logged_in(server, "alice/a") as alice:
            request = alice.make_iq_get(ito=bob.boundjid)
            alice.loop.create_task(asked(reason, request))
            await asyncio.sleep(0)
            del request
        # Nothing may be left that refers to the client, and so to its task.
        del alice
        await asyncio.sleep(0)
        bob.del_filter("in", drop)
    gc.collect()
    assert "Task was destroyed" not in caplog.text
    assert reason == ["timed out"]
