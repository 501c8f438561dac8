"""Folders that only their owner can use."""

from __future__ import annotations

from pathlib import Path

__all__ = ["make_private"]


def make_private(folder: Path) -> None:
    """Create a folder if needed, with its missing parents, for the owner alone.

    `Path.mkdir` applies its mode to the last folder only: with a umask of 0, others
    could replace the folder in its parent.

    Raises:
        OSError: the folder cannot be created.
    """
    missing = [parent for parent in folder.parents if not parent.exists()]
    for directory in (*reversed(missing), folder):
        directory.mkdir(mode=0o700, exist_ok=True)
