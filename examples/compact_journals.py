"""Joins the small files of journals into one compressed file for each hour of a node.

    python compact_journals.py JOURNALS…

A node closes a file every five minutes: 288 files a day, which are slow to list in an
object store. Run this script every hour where the journals of a fleet are kept. It
changes no line. If it is killed, some lines may exist twice; an audit counts them once.
"""

import os
import re
import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

#: NODE-BOOT-N.jsonl, as `qos.journal` names the files that it has closed.
NAME = re.compile(r"(?P<boot>[^.].*-[^-]*)-(?P<number>[0-9]+)\.jsonl")
#: An audit also reads compressed files of up to 32 MB from a remote file system.
BYTES_MAX = 16 * 2**20


def hours(day: Path) -> dict[tuple[str, str], list[Path]]:
    """The files of a day's past hours, by boot and hour, in their order."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H")
    found: dict[tuple[str, str], list[tuple[int, Path]]] = defaultdict(list)
    for path in day.glob("*.jsonl"):
        match = NAME.fullmatch(path.name)
        with path.open(encoding="utf-8") as file:
            at = re.search(r'"at":"([0-9T:-]{13})', file.readline())
        if match and at and at[1] < now:
            key = match["boot"], at[1]
            found[key].append((int(match["number"]), path))
    return {key: [path for _, path in sorted(files)] for key, files in found.items()}


def join(paths: list[Path]) -> None:
    """Write the lines of these files into one compressed file, and remove the files."""
    target = paths[0].with_name(f"{paths[0].name}.zst")
    hidden = target.with_name(f".{target.name}.{os.getpid()}")
    with hidden.open("wb") as file, pa.CompressedOutputStream(file, "zstd") as out:
        for path in paths:
            lines = path.read_bytes()
            # A power cut can leave half a line; the next line must not be appended to
            # it.
            out.write(lines if lines.endswith(b"\n") else lines + b"\n")
    # The new file is on disk before the files that it replaces are removed.
    with hidden.open("rb") as written:
        os.fsync(written.fileno())
    if hidden.stat().st_size > BYTES_MAX and len(paths) > 1:
        hidden.unlink()
        half = len(paths) // 2
        join(paths[:half])
        join(paths[half:])
        return
    hidden.rename(target)
    folder = os.open(target.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    for path in paths:
        path.unlink()


journals = sys.argv[1:]
if not journals:
    sys.exit(__doc__)
for journal in journals:
    if not Path(journal).is_dir():
        sys.exit(f"{journal}: there is no such folder")
    for day in sorted(Path(journal).glob("date=*")):
        for paths in hours(day).values():
            join(paths)
