"""A command on what looks like a new machine: see enter.sh."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from qos.testing.processes import Child

ROOT = Path(__file__).parents[2]

#: What pip would load from the network: these, and what they need.
_WANTED = ("slixmpp", "aiofiles", "shtab", "hatchling")


def run_on_new_machine(
    folder: Path, *command: str, timeout_s: float, packages: tuple[str, ...] = ()
) -> str:
    """Returns what it has printed; fails if it has failed.

    Args:
        folder: an empty one, to work in.
        command: the words of the command, which runs in the project's folder.
        timeout_s: how long it may take.
        packages: what pip would load besides the library and what it needs.
    """
    (folder / "machine").mkdir()
    (folder / "packages").mkdir()
    copy_packages(folder / "packages", (*_WANTED, *packages))
    # An overlay needs root; the users of a namespace of users can have it.
    users = [] if os.geteuid() == 0 else ["--user", "--map-root-user", "--map-auto"]
    done = subprocess.run(
        [
            *(*Child.mortal(), "unshare", *users, "--mount", "--net", "--pid"),
            *("--uts", "--ipc"),
            *("--fork", "--kill-child", "bash", ROOT / "tests" / "docs" / "enter.sh"),
            *(folder / "machine", ROOT, folder / "packages"),
            os.path.realpath(sys.executable),
            *command,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout_s,
        text=True,
        check=False,
    )
    if done.returncode:
        if "unshare: " in done.stdout:
            pytest.fail(f"no namespace can be had here: {done.stdout}")
        pytest.fail(done.stdout)
    return done.stdout


def copy_packages(folder: Path, names: tuple[str, ...]) -> None:
    """Copy these packages, and all that they need, from our own environment."""
    for each in {dist.name: dist for dist in _needed(names)}.values():
        for file in each.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(each.locate_file(file)), folder / file)


def _needed(names: tuple[str, ...]) -> Iterator[Distribution]:
    for name in names:
        dist = distribution(name)
        yield dist
        for text in dist.requires or ():
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                yield from _needed((wanted.name,))
