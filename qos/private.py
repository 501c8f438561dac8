"""Folders that are their owner's alone."""

from __future__ import annotations

from pathlib import Path

__all__ = ["make_private"]


def make_private(folder: Path) -> None:
    """Make a folder if need be, and those above it that are missing.

    `Path.mkdir` gives its mode to the last one only: with a umask of 0 anybody could put
    another in its place.

    Raises:
        OSError: it cannot be made.
    """
    missing = [each for each in folder.parents if not each.exists()]
    for each in (*reversed(missing), folder):
        each.mkdir(mode=0o700, exist_ok=True)
