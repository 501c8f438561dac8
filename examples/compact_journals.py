"""Joins the small files of journals into one compressed file for each hour of a node.

    python compact_journals.py JOURNALS…

A node closes a file every five minutes: 288 files a day, which are slow to list in an
object store. Run this script every hour where the journals of a fleet are kept. It
changes no line. If it is killed, some lines may exist twice; an audit counts them once.

No file is ever replaced. Files that come back after they were joined (rsync copies them
again) are removed if each of their lines is in the joined file; otherwise they get a
joined file of their own. What cannot be read stays as it is: the exit status is 1 then.
"""

import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pyarrow as pa

#: NODE-BOOT-N.jsonl, as `qos.journal` names the files that it has closed.
NAME = re.compile(r"(?P<boot>[^.].*-[^-]*)-(?P<number>[0-9]+)\.jsonl", re.DOTALL)
#: An audit also reads compressed files of up to 32 MB from a remote file system.
BYTES_MAX = 16 * 2**20
#: No line of a journal is longer.
LINE_BYTES_MAX = 256 * 1024

problems: list[str] = []


def hours(day: Path) -> Iterator[list[Path]]:
    """The files of a day's past hours: those of a boot and an hour, in their order."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H").encode()
    groups: dict[tuple[str, bytes], list[tuple[int, Path]]] = defaultdict(list)
    for path in day.glob("*.jsonl"):
        match = NAME.fullmatch(path.name)
        if not match:
            continue
        try:
            with path.open("rb") as file:
                first_line = file.readline(LINE_BYTES_MAX)
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
            continue
        at = re.search(rb'"at":"([0-9T:-]{13})', first_line)
        if at and at[1] < now:
            key = match["boot"], at[1]
            groups[key].append((int(match["number"]), path))
    for files in groups.values():
        yield [path for _, path in sorted(files)]


def lines_of(content: bytes) -> bytes:
    """Whole lines: a power cut can leave half a line, and the next is not its rest."""
    return content if content.endswith(b"\n") or not content else content + b"\n"


def are_in(paths: Iterable[Path], joined: Path) -> bool:
    """Whether each line of some files is in a joined file."""
    missing = {line for path in paths for line in path.read_bytes().split(b"\n")}
    missing.discard(b"")
    try:
        with joined.open("rb") as raw, pa.CompressedInputStream(raw, "zstd") as file:
            rest = b""
            while missing and (more := file.read(2**20)):
                *lines, rest = (rest + more).split(b"\n")
                missing.difference_update(lines)
    except OSError:
        # It is broken.
        return False
    return not missing


def join(paths: list[Path]) -> None:
    """Write the lines of these files into one compressed file, and remove the files."""
    before = [_state(path) for path in paths]
    target = paths[0].with_name(f"{paths[0].name}.zst")
    if not (target.exists() and are_in(paths, target)):
        hidden = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            if not write(paths, hidden):
                half = len(paths) // 2
                join(paths[:half])
                join(paths[half:])
                return
            publish(hidden, target)
        finally:
            hidden.unlink(missing_ok=True)
    for path, state in zip(paths, before, strict=True):
        # Somebody may have appended to it meanwhile.
        if _state(path) == state:
            path.unlink()


def write(paths: list[Path], hidden: Path) -> bool:
    """Write the lines of files; returns whether they are few enough for one file."""
    with hidden.open("wb") as file, pa.CompressedOutputStream(file, "zstd") as out:
        for path in paths:
            out.write(lines_of(path.read_bytes()))
    # The new file is on disk before the files that it replaces are removed.
    with hidden.open("rb") as written:
        os.fsync(written.fileno())
    return hidden.stat().st_size <= BYTES_MAX or len(paths) == 1


def publish(hidden: Path, target: Path) -> None:
    """Give a written file its name, or one beside it if there is such a file."""
    stem = target.name.removesuffix(".jsonl.zst")
    names = (f"{stem}.{number}.jsonl.zst" for number in count(2))
    name = target.name
    while True:
        try:
            # Unlike a rename, this replaces nothing.
            os.link(hidden, target.with_name(name))
            break
        except FileExistsError:
            name = next(names)
    folder = os.open(target.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def _state(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


journals = sys.argv[1:]
if not journals:
    sys.exit(__doc__)
for journal in journals:
    if not Path(journal).is_dir():
        sys.exit(f"{journal}: there is no such folder")
    for day in sorted(Path(journal).glob("date=*")):
        for paths in hours(day):
            try:
                join(paths)
            except OSError as error:
                problems.append(f"{error.filename or paths[0]}: {error.strerror}")
if problems:
    sys.exit("\n".join(problems))
