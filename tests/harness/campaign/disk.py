"""A small disk of one's own, to be filled and emptied; for root only."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from qos.cli.status import CommandError, Status
from qos.testing.processes import completed

__all__ = ["SmallDisk", "with_mounts_of_its_own"]

#: Set in a process whose mounts are invisible to others.
_MARK = "XMPP_QOS_OWN_MOUNTS"

_UNSHARE = ("unshare", "--mount", "--propagation", "private")


def with_mounts_of_its_own(command: Sequence[str]) -> None:
    """Run this command in place of this process, with mounts of its own, if possible.

    Only the process and its children see the mounts, which end with the last of them,
    however that ends.
    """
    if _MARK in os.environ or os.geteuid() != 0 or shutil.which("unshare") is None:
        return
    tried = subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False)
    if tried.returncode == 0:
        sys.stdout.flush()
        os.environ[_MARK] = "1"
        os.execvp(_UNSHARE[0], [*_UNSHARE, *command])  # noqa: S606


class SmallDisk:
    """A folder that can be full within this context; afterwards it is a usual folder.

    Attributes:
        folder: the folder.
        can_be_full: whether it is a disk of its own; otherwise it is never full.
    """

    def __init__(self, folder: Path, size_mb: int) -> None:
        self.folder = folder
        self.can_be_full = False
        self._size_mb = size_mb
        self._ballast = folder / "ballast"

    async def __aenter__(self) -> Self:
        """Make it, as a disk of its own where that is allowed."""
        self.folder.mkdir()
        if _MARK in os.environ:
            options = f"size={self._size_mb}m,mode=0700"
            folder = str(self.folder)
            await _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", folder)
            self.can_be_full = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Keep its contents."""
        self.empty()
        if self.can_be_full:
            kept = self.folder.with_name("kept")
            shutil.copytree(self.folder, kept)
            # A killed process may still be ending.
            await _run("umount", "--lazy", str(self.folder))
            self.can_be_full = False
            kept.replace(self.folder)

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
        """Give the room back; harmless if there is room."""
        with contextlib.suppress(FileNotFoundError):
            self._ballast.unlink()


async def _run(*command: str) -> None:
    done = await completed(*command)
    if done.status:
        raise CommandError(done.err.strip(), Status.INTERNAL)
