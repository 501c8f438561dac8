from __future__ import annotations

import os
import resource
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from qos.stores import FilesStore, SqliteStore

NOBODY = 65534

#: A durable store in a folder; its file name does not matter.
MakeStore = Callable[[Path], SqliteStore | FilesStore]


@pytest.fixture(params=["sqlite", "files"])
def make_store(request: pytest.FixtureRequest) -> MakeStore:
    if request.param == "sqlite":
        return lambda folder: SqliteStore(folder / "store.db")
    return lambda folder: FilesStore(folder / "store")


@pytest.fixture
def ram_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, if the system has one: no test waits for a disk.

    A killed process leaves the same there; only a power cut does not.
    """
    if not os.access("/dev/shm", os.W_OK):  # noqa: S108 - shared memory, not a file of ours
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="stores-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


class Disk:
    """A folder on a disk that can be full.

    A small file system of its own where that may be mounted; elsewhere, and to
    try the other errno as well, a limit on the size of files.
    """

    def __init__(self, folder: Path, *, mounted: bool) -> None:
        self.folder = folder
        self._mounted = mounted
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(self, *, but: int = 0) -> None:
        """Leave this many bytes free."""
        if not self._mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (but + 1, self._limits[1]))
            return
        ballast = self.folder / "ballast"
        for size in (2**16, 2**12, 1):
            with suppress(OSError), ballast.open("ab", 0) as file:
                while True:
                    file.write(b"x" * size)
        os.truncate(ballast, ballast.stat().st_size - but)

    def free(self) -> None:
        if self._mounted:
            (self.folder / "ballast").unlink(missing_ok=True)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)


def mount(*arguments: str | Path) -> bool:
    """Whether it could be mounted: users cannot, nor can root in most containers."""
    command = shutil.which("mount")
    if os.geteuid() != 0 or command is None:
        return False
    done = subprocess.run([command, *arguments], check=False, capture_output=True)
    return done.returncode == 0


def unmount(folder: Path) -> None:
    umount = shutil.which("umount")
    assert umount is not None
    subprocess.run([umount, folder], check=True)


@pytest.fixture(params=["mounted", "limited"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    options = ("-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path)
    mounted = request.param == "mounted" and mount(*options)
    disk = Disk(tmp_path, mounted=mounted)
    try:
        yield disk
    finally:
        disk.free()
        if mounted:
            unmount(tmp_path)


class Place:
    """A folder that can be made read-only, even for root."""

    def __init__(self, folder: Path, *, by_mount: bool) -> None:
        self.folder = folder
        self._by_mount = by_mount

    @contextmanager
    def read_only(self, part: Path | None = None) -> Iterator[None]:
        """Make the folder read-only, or a part of it."""
        if self._by_mount and part is None:
            with self._mounted_read_only() as mounted:
                if mounted:
                    yield
                    return
        places = [part] if part else [self.folder, *self.folder.rglob("*")]
        modes = {place: stat.S_IMODE(place.stat().st_mode) for place in places}
        for place, mode in modes.items():
            place.chmod(mode & 0o555)
        try:
            with self._as_a_user():
                yield
        finally:
            for place, mode in modes.items():
                place.chmod(mode)

    @contextmanager
    def _mounted_read_only(self) -> Iterator[bool]:
        if not mount("--bind", self.folder, self.folder):
            yield False
            return
        try:
            yield mount("-o", "remount,bind,ro", self.folder)
        finally:
            unmount(self.folder)

    @contextmanager
    def _as_a_user(self) -> Iterator[None]:
        """Root may write whatever the mode is.

        Become nobody, and the owner of all files.
        """
        if os.geteuid() != 0:
            yield
            return
        for place in [self.folder, *self.folder.rglob("*")]:
            os.chown(place, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield
        finally:
            os.seteuid(0)


@pytest.fixture(params=["mount", "mode"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    # Not tmp_path: other users may not read that.
    folder = Path(tempfile.mkdtemp(prefix="store-place-"))
    folder.chmod(0o755)
    yield Place(folder, by_mount=request.param == "mount")
    shutil.rmtree(folder)
