"""Joins the small files of journals, an hour of a node into one, compressed.

    python compact_journals.py JOURNALS…

A node closes a file every five minutes: 288 a day, which a store lists one by one. Run
it each hour where the journals of a fleet are kept. No line is changed. Where it is
killed, some lines are there twice; an audit counts them once.
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
#: An audit reads compressed files of up to 32 MB also where they are elsewhere.
BYTES_MAX = 16 * 2**20


def hours(day: Path) -> dict[tuple[str, str], list[Path]]:
    """The files of a day that are over, by boot and hour, in their order."""
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
    """Write one compressed file of the lines of some; and then remove those."""
    target = paths[0].with_name(f"{paths[0].name}.zst")
    hidden = target.with_name(f".{target.name}.{os.getpid()}")
    with hidden.open("wb") as file, pa.CompressedOutputStream(file, "zstd") as out:
        for path in paths:
            lines = path.read_bytes()
            # A power cut leaves half a line, which must not eat the next one.
            out.write(lines if lines.endswith(b"\n") else lines + b"\n")
    # On disk, before what it replaces is gone.
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
