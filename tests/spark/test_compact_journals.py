"""`examples/compact_journals.py`: no line is lost, whatever comes back or is broken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from qos.audit.read import is_of_journal

SCRIPT = Path(__file__).parents[2] / "examples" / "compact_journals.py"
DAY = "date=2026-01-05"


def line(number: int) -> bytes:
    return f'{{"v":2,"at":"2026-01-05T12:00:00.{number:06}Z"}}\n'.encode()


def compact(folder: Path, *, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done.stderr


def lines(folder: Path) -> Counter[bytes]:
    """All lines of a day, of joined files and of others."""
    content = b""
    for path in sorted((folder / DAY).glob("[!.]*")):
        assert is_of_journal(str(path)), path
        if path.suffix == ".zst":
            with path.open("rb") as raw, pa.CompressedInputStream(raw, "zstd") as file:
                content += file.read()
        else:
            content += path.read_bytes()
    return Counter(content.splitlines(keepends=True))


@pytest.fixture
def files(tmp_path: Path) -> dict[Path, bytes]:
    """Twelve files of an hour, with ten lines each; joined once."""
    (tmp_path / DAY).mkdir()
    contents = {
        tmp_path / DAY / f"a%40x-b-{number}.jsonl": b"".join(
            line(10 * number + place) for place in range(10)
        )
        for number in range(1, 13)
    }
    for path, content in contents.items():
        path.write_bytes(content)
    before = lines(tmp_path)
    compact(tmp_path)
    assert [path.name for path in (tmp_path / DAY).iterdir()] == ["a%40x-b-1.jsonl.zst"]
    assert lines(tmp_path) == before
    assert sum(before.values()) == 120
    return contents


def test_files_that_come_back_replace_nothing(
    tmp_path: Path, files: dict[Path, bytes]
) -> None:
    """rsync brings them again each time, and 120 lines became 20."""
    before = lines(tmp_path)
    for path in list(files)[:2]:
        path.write_bytes(files[path])
    compact(tmp_path)
    assert lines(tmp_path) == before
    assert len(list((tmp_path / DAY).iterdir())) == 1


def test_files_that_come_back_with_more_get_a_joined_file_of_their_own(
    tmp_path: Path, files: dict[Path, bytes]
) -> None:
    """Such as after a half copy; and so does a file beside a broken joined one."""
    before = lines(tmp_path)
    first = next(iter(files))
    for number in (1, 2):
        first.write_bytes(files[first] + line(500 + number))
        compact(tmp_path)
        assert not first.exists()
        assert set(before) | {line(500 + number)} <= set(lines(tmp_path))
    joined = tmp_path / DAY / "a%40x-b-1.jsonl.zst"
    joined.write_bytes(joined.read_bytes()[:50])
    first.write_bytes(files[first])
    compact(tmp_path)
    assert joined.stat().st_size == 50
    assert len(list((tmp_path / DAY).iterdir())) == 4


def test_a_line_that_is_no_utf8_and_a_file_that_cannot_be_read_stop_nothing(
    tmp_path: Path,
) -> None:
    """The lines are copied as they are, and the file stays where it is."""
    day = tmp_path / DAY
    day.mkdir()
    (day / "a-b-1.jsonl").write_bytes(b"\xff" + line(1) + line(2)[:-5])
    (day / "a-b-2.jsonl").write_bytes(line(3))
    (day / "c-b-1.jsonl").symlink_to("nowhere")
    (day / "notes.jsonl").write_bytes(b"\xff")
    (day / os.fsdecode(b"n\xff-b-1.jsonl")).write_bytes(line(4))
    said = compact(tmp_path, status=1)
    assert said.count("\n") == 1
    assert "c-b-1.jsonl: No such file or directory" in said
    names = {os.fsencode(path.name) for path in day.iterdir()}
    assert names == {
        b"a-b-1.jsonl.zst",
        b"c-b-1.jsonl",
        b"notes.jsonl",
        b"n\xff-b-1.jsonl.zst",
    }
    for name in ("c-b-1.jsonl", "notes.jsonl"):
        (day / name).unlink()
    assert lines(tmp_path) == {
        b"\xff" + line(1): 1,
        line(2)[:-5] + b"\n": 1,
        line(3): 1,
        line(4): 1,
    }
