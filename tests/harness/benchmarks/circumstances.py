"""The circumstances of a measurement: when, with which versions, on which machine."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.servers import Server

__all__ = ["about", "in_words"]


async def about(server: Server, *, peers: bool = False) -> dict[str, Any]:
    """Return the circumstances, for JSON.

    Args:
        server: the server that is used.
        peers: whether the versions of peers belong to them.
    """
    from benchmarks.machine import describe
    from benchmarks.versions import versions

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": await versions(peers=peers),
        "server": {"name": server.name, "version": server.version},
        "machine": describe(Path(tempfile.gettempdir())),
    }


def in_words(
    about: Mapping[str, Any], how: str = "", *, with_server: bool = True
) -> str:
    """Return the circumstances, for people.

    Args:
        about: the result of `about`.
        how: a sentence about the way of measuring.
        with_server: whether to name the server; not if it was not started.
    """
    from benchmarks.report import folded

    machine, server = about["machine"], about["server"]
    used = {server["name"]: server["version"]} if with_server else {}
    words = ", ".join(
        f"{name} {version or ''}".strip()
        for name, version in (used | about["versions"]).items()
    )
    sentences = (
        f"{about['date']}. {how} {words}." if how else f"{about['date']}. {words}."
    )
    return folded(
        f"{sentences} {machine['cores']} cores, {machine['model']}, "
        f"{machine['system']}, load {machine['load']}; the stores on "
        f"{machine['file_system']}."
    )
