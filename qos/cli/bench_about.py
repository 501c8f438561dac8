"""The circumstances of a measurement: when, with which versions, on which machine."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["about", "in_words"]


async def about(server: str, version: str | None) -> dict[str, Any]:
    """Return the circumstances, for JSON.

    Args:
        server: the name of the server that is used.
        version: its version; None: it was not started.
    """
    from qos.bench.machine import describe
    from qos.bench.versions import versions

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": await versions(peers=False),
        "server": {"name": server, "version": version},
        "machine": describe(Path(tempfile.gettempdir())),
    }


def in_words(about: Mapping[str, Any]) -> str:
    """Return the circumstances, for people."""
    from qos.bench.report import folded

    machine, server = about["machine"], about["server"]
    # A server that was not started has no version.
    used = {server["name"]: server["version"]} if server["version"] else {}
    words = ", ".join(
        f"{name} {each}" for name, each in (used | about["versions"]).items()
    )
    return folded(
        f"{about['date']}. {words}. {machine['cores']} cores, {machine['model']}, "
        f"{machine['system']}, load {machine['load']}; the stores on "
        f"{machine['file_system']}."
    )
