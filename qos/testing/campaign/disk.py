"""A small disk of one's own, to be filled and emptied; for root alone."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from qos.cli.status import CommandError, Status

__all__ = ["SmallDisk", "with_mounts_of_its_own"]

#: Set where mounts are nobody else's already.
_MARK = "XMPP_QOS_OWN_MOUNTS"

_UNSHARE = ("unshare", "--mount", "--propagation", "private")


def with_mounts_of_its_own(command: Sequence[str]) -> None:
    """Run this command instead of what this process does now, if mounts can be had.

    They are seen by it and its children alone, and are gone with the last of them,
    however that ends.
    """
    if _MARK in os.environ or os.geteuid() != 0 or shutil.which("unshare") is None:
        return
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False)  # noqa: S603
    if tried.returncode == 0:
        sys.stdout.flush()
        os.environ[_MARK] = "1"
        os.execvp(_UNSHARE[0], [*_UNSHARE, *command])  # noqa: S606


class SmallDisk:
    """A folder that can be full.

    Attributes:
        folder: the folder.
        can_be_full: whether it is a disk of its own; else it never is full.
    """

    def __init__(self, folder: Path, size_mb: int) -> None:
        self.folder = folder
        self.can_be_full = False
        self._size_mb = size_mb
        self._ballast = folder / "ballast"

    async def mount(self) -> None:
        """Make it, where that is allowed."""
        self.folder.mkdir()
        if _MARK not in os.environ:
            return
        options = f"size={self._size_mb}m,mode=0700"
        process = await asyncio.create_subprocess_exec(
            *("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.folder)),
            stderr=asyncio.subprocess.PIPE,
        )
        _, why = await process.communicate()
        if process.returncode:
            text = f"no tmpfs could be mounted: {why.decode().strip()}"
            raise CommandError(text, Status.INTERNAL)
        self.can_be_full = True

    def fill(self) -> None:
        """Leave no room for anything."""
        file = os.open(self._ballast, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            size = 0
            step = self._size_mb * 2**20
            while step >= os.sysconf("SC_PAGE_SIZE"):
                try:
                    os.posix_fallocate(file, size, step)
                    size += step
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 2
        finally:
            os.close(file)

    def empty(self) -> None:
        """Give the room back; no harm if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._ballast.unlink()
