"""The machine on which a run was done."""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["describe", "file_system"]


def describe(folder: Path) -> dict[str, object]:
    """The machine.

    Args:
        folder: the folder of the stores.
    """
    return {
        "model": _model(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "file_system": file_system(folder),
    }


def file_system(folder: Path) -> str | None:
    """The type of the file system of a folder; None: not Linux, so it is not known.

    On a tmpfs, syncing to the disk costs nothing, because there is no disk.
    """
    try:
        mounts = Path("/proc/self/mounts").read_text()
    except OSError:
        return None
    path = folder.resolve()
    # Later ones hide earlier ones at the same place.
    types = {Path(line.split()[1]): line.split()[2] for line in mounts.splitlines()}
    return next(types[each] for each in (path, *path.parents) if each in types)


def _model() -> str:
    """The model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    models = (line.partition(":")[2] for line in lines if line.startswith("model name"))
    return next(models, platform.machine()).strip()
