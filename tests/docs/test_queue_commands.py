"""The guide has a row for each command that a service offers to XMPP clients."""

from __future__ import annotations

import re
from pathlib import Path

from qos.core.queue.command_outcomes import (
    DEAD_PAGE_MAX,
    ITEMS_PAGE_MAX,
    QUEUES_PAGE_MAX,
    REQUEUED_MAX,
    WORKERS_MAX,
)
from qos.core.queue.command_session_table import SESSION_S_MAX, SESSIONS_PER_ACCOUNT_MAX
from qos.core.queue.command_table import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "queues.md"


def test_the_guide_has_each_command_with_its_title_and_bounds() -> None:
    """An operator looks here for what the client shows."""
    text = PAGE.read_text("utf-8")
    section = text.partition("## From any XMPP client")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, re.MULTILINE)
    assert [name for name, _ in rows] == [command.value for command in COMMANDS]
    for (_, row), entry in zip(rows, COMMANDS.values(), strict=True):
        assert row.startswith(entry.title)
    assert f"{QUEUES_PAGE_MAX} queues" in section
    assert f"{ITEMS_PAGE_MAX}\nitems or {DEAD_PAGE_MAX} dead items" in section
    assert f"the first {WORKERS_MAX} |" in section
    assert (REQUEUED_MAX, SESSION_S_MAX, SESSIONS_PER_ACCOUNT_MAX) == (1000, 600, 10)
