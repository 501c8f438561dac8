"""A wrong value for any argument of a device is refused, and the error names the
argument.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from qos.client.connect import connect
from wrong_values import NO_JIDS, NO_SECONDS, accepted


async def test_every_argument_of_connect_is_checked_and_nothing_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise `port="5222"` would fail in the task that connects, and be tried again."""
    monkeypatch.chdir(tmp_path)
    tasks = asyncio.all_tasks()
    wrong: Mapping[str, Sequence[object]] = {
        "jid": (*NO_JIDS, "localhost"),
        "password": ("", "\x07"),
        "host": ("",),
        "port": (0, -1, 65536),
        "tls": ("", "TLS"),
        "ca_file": ("", "no.pem"),
        "connect_timeout_s": (0, *NO_SECONDS),
        "ping_interval_s": (0, *NO_SECONDS),
        "ping_timeout_s": (0, *NO_SECONDS),
        "plugins": ({"xep_0199": None}, {1: {}}),
    }
    valid = {"jid": "lamp@localhost/1", "password": "secret", "store": "memory:"}
    problems = await accepted(connect, valid, wrong)
    # math.inf means: wait until there is a session.
    never = f"connect_timeout_s={math.inf!r}"
    assert [each for each in problems if not each.startswith(never)] == []
    assert asyncio.all_tasks() == tasks
    assert os.listdir(tmp_path) == []
