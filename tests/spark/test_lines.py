"""Lines of files, checked together: odd ones by themselves, in bounded memory."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from qos.audit import lines
from qos.audit.lines import checked, checked_in
from qos.journal.schema import LINE_BYTES_MAX, BadLine, NewerSchema, parse_line

GOOD = {
    "v": 2,
    "at": "2026-01-05T12:00:00.000001Z",
    "boot": "b1",
    "seq": 1,
    "node": "a@x/1",
    "role": "sender",
    "event": "accepted",
    "level": "assured",
    "msg_id": "m",
    "from": "a@x/1",
    "to": "b@x/1",
    "bytes": 3,
}


def line(seq: int = 1, **changes: object) -> bytes:
    fields = {**GOOD, "seq": seq, **changes}
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


#: One of each kind that a bulk check could misread, or fail on.
ODD = {
    "torn": line()[:50] + b"\n",
    "torn and glued": line()[:50] + line(),
    "empty": b"\n",
    "new field": line(colour="red"),
    "newer": line(v=3, event="flown"),
    "no bytes": line().replace(b',"bytes":3', b""),
    "no such event": line(event="flown"),
    "null": line(to=None),
    "number for text": line(to=5),
    "object for text": line(to={"v": 1}),
    "no time": line(at="2026-13-05T12:00:00.000001Z"),
    "other time": line(at="2026-01-05 12:00:00.000001"),
    "raw UTF-8": line(to="bü@x").replace(b"\\u00fc", "ü".encode()),
    "no UTF-8": line(to="bü@x").replace(b"\\u00fc", b"\xff"),
    "half a character": line(to="\ud800"),
    "other half": line(to="\udc00"),
    "control character": line(to="b").replace(b'"b"', b'"\x01"'),
    "deleted": line(to="b").replace(b'"b"', b'"\x7f"'),
    "hidden space": line(to="\x7f").replace(b'"\\u007f"', b'"\x7f"     '),
    "needless escape": line(to="b").replace(b'"b"', b'"\\u0062"'),
    "space": b" " + line(),
    "return": line()[:-1] + b"\r\n",
    "minus": line(bytes=-3),
    "large": line(bytes=2**63),
    "largest seq": line(seq=2**53 - 1),
    "seq too large": line(seq=2**53),
    "bytes too large": line(bytes=2**53),
    "first year": line(at="2000-01-01T00:00:00.000000Z"),
    "before it": line(at="1999-12-31T23:59:59.999999Z"),
    "last year": line(at="2200-12-31T23:59:59.999999Z"),
    "after it": line(at="2201-01-01T00:00:00.000000Z"),
    "since 1970": line(since="1970-01-01T00:00:00.000000Z"),
    "too many attempts": line(attempt=2**31),
    "two objects": line()[:-1] + line(),
    "long": line(condition="x" * LINE_BYTES_MAX),
    "same field twice": line().replace(b'"bytes":3', b'"bytes":4,"bytes":3'),
}


def meaning(text: bytes) -> str:
    """The result of `parse_line`."""
    try:
        fields = parse_line(text[:-1].decode())
    except NewerSchema:
        return "newer"
    except (BadLine, UnicodeDecodeError):
        return "bad"
    return "bad" if int(fields.get("attempt", 0)) >= 2**31 else "event"


def found(table: pa.Table) -> list[str]:
    # A foreign word is a well-formed line of a node that may not write it.
    names = {None: "event", "newer-schema": "newer", "foreign-word": "event"}
    return [names.get(each, "bad") for each in table["problem"].to_pylist()]


@pytest.mark.parametrize("name", ODD)
def test_an_odd_line_among_many_is_what_it_is_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its place; the lines around it are checked together as before."""
    odd = ODD[name]
    assert found(checked("f", odd)) == [meaning(odd)]
    texts = [line(seq) for seq in range(1, 2500)]
    texts[700] = texts[2000] = odd
    singly = []
    row = lines._row

    def one(file: str, text: bytes) -> dict[str, Any]:
        singly.append(text)
        return row(file, text)

    monkeypatch.setattr(lines, "_row", one)
    table = checked("f", b"".join(texts))
    assert found(table) == [meaning(text) for text in texts]
    seqs = [seq for seq in table["seq"].to_pylist() if seq not in {None, 1, 2**53 - 1}]
    assert seqs == [seq for seq in range(2, 2500) if seq not in {701, 2001}]
    # A line that only a parser finds odd is checked together with some around it.
    assert len(singly) <= (2 * 128 if name in PARSED else 2)
    if name not in {"deleted", *WITHIN}:
        assert singly.count(odd[:-1]) == 2


#: These are not odd at all: the greatest and the least that is accepted.
WITHIN = {"largest seq", "first year", "last year"}

#: Only a parser notices these.
PARSED = {
    "number for text",
    "no time",
    "other time",
    "half a character",
    "other half",
    "large",
    "same field twice",
    "needless escape",
}


@pytest.mark.parametrize("name", ["bü@x", "b😀@x", 'b"\\\n\x01é@x', "b한글@x"])
def test_a_name_that_is_escaped_is_no_reason_to_look_at_each_line(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lines of a node have its name in them."""
    monkeypatch.setattr(lines, "_row", None)
    names = {"node": name, "from": name, "to": name}
    content = b"".join(line(seq, **names) for seq in range(1, 500))
    table = checked("f", content)
    assert found(table) == ["event"] * 499
    assert set(table["to"].to_pylist()) == {name}


def test_problems_are_of_their_files_though_files_are_checked_together() -> None:
    """An operator looks for them there."""
    contents = [line(n) + f"bad {n}\n".encode() * n + line(n) for n in range(1, 20)]
    names = [f"f{n}" for n in range(1, 20)]
    batch = pa.record_batch({"file": names, "content": pa.array(contents, pa.binary())})
    table = pa.concat_tables(checked_in(batch))
    rows = [row for row in table.to_pylist() if row["problem"]]
    assert [(row["file"], row["example"]) for row in rows] == [
        (f"f{n}", f"bad {n}") for n in range(1, 20) for _ in range(n)
    ]


# -- files that are no journal's, or too large ------------------------------------

#: Reads a file as a worker does, and says the memory that it took.
READ = """
import json, resource, sys
from pathlib import Path
from collections import Counter
import pyarrow as pa
from qos.audit.lines import checked_in

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

batch = pa.record_batch({"file": [], "content": pa.array([], pa.binary())})
list(checked_in(batch))
before = peak()
for name in sys.argv[1:]:
    found, uris = Counter(), [Path(name).as_uri()]
    batch = pa.record_batch({"file": uris, "content": pa.nulls(1, pa.binary())})
    for table in checked_in(batch):
        found.update(each or "event" for each in table["problem"].to_pylist())
    print(json.dumps([name, peak() - before, found]))
"""


def read_in_child(*paths: Path) -> list[tuple[str, int, dict[str, int]]]:
    """Of each: its name, the megabytes that it and those before took, what was found."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", READ, *map(str, paths)],
        capture_output=True,
        text=True,
        check=True,
    )
    told = map(json.loads, done.stdout.splitlines())
    return [(Path(name).name, size, kinds) for name, size, kinds in told]


def test_a_file_that_becomes_200_mb_or_a_line_of_400_costs_a_few(
    tmp_path: Path,
) -> None:
    """Otherwise anybody who can write into the folder could end each audit."""
    expected: dict[str, dict[str, int]] = {
        long_line(tmp_path): {"event": 4, "long-line": 1}
    }
    for compression in ("gz", "zst"):
        bomb, whole = packed(tmp_path, compression)
        expected |= {bomb: {"long-line": 1}, whole: {"event": 50_000}}
    for name, size, kinds in read_in_child(*(tmp_path / each for each in expected)):
        assert kinds == expected.pop(name), name
        assert size < 100, name
    assert not expected


def long_line(folder: Path) -> str:
    """A file with a line of 400 MB."""
    path = folder / "a-b-1.jsonl"
    with path.open("wb") as file:
        file.write(line(1))
        # A hole: 400 MB without a newline, that are nowhere on the disk.
        os.truncate(path, 400 * 2**20)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + line(2) * 3)
    return path.name


def packed(folder: Path, compression: str) -> list[str]:
    """A bomb of some hundred bytes that unpacks to 200 MB; and one of whole lines."""
    paths = [folder / f"a-b-{n}.jsonl.{compression}" for n in (1, 2)]
    for path, text, count in zip(
        paths, (b"x" * 2**20, line() * 5000), (200, 10), strict=True
    ):
        with pa.CompressedOutputStream(
            str(path), {"gz": "gzip"}.get(compression, "zstd")
        ) as out:
            for _ in range(count):
                out.write(text)
    return [path.name for path in paths]


def test_compressed_files_are_read_by_their_names(tmp_path: Path) -> None:
    """Also such as were put together of several; and of a broken one what there is."""
    text = b"".join(line(seq) for seq in range(1, 4000))
    whole = gzip.compress(text)
    files = {
        "whole.jsonl.gz": whole,
        "twice.jsonl.gz": whole + whole,
        "empty.jsonl.gz": gzip.compress(b""),
        "torn.jsonl.gz": whole[: len(whole) // 2],
        "false.jsonl.zst": b"not compressed at all, as it says\n" * 5,
        "whole.jsonl.zst": pa.compress(text, "zstd", asbytes=True),
        "plain.jsonl": text,
    }
    kinds = {}
    for name, content in files.items():
        batch = pa.record_batch({"file": [name], "content": pa.array([content])})
        table = pa.concat_tables(checked_in(batch))
        problems = [each for each in table["problem"].to_pylist() if each]
        kinds[name] = (len(table) - len(problems), problems)
    torn, broken = kinds.pop("torn.jsonl.gz")
    assert 0 <= torn < 3999
    assert "broken-file" in broken
    assert kinds == {
        "whole.jsonl.gz": (3999, []),
        "twice.jsonl.gz": (2 * 3999, []),
        "empty.jsonl.gz": (0, []),
        "false.jsonl.zst": (0, ["broken-file"]),
        "whole.jsonl.zst": (3999, []),
        "plain.jsonl": (3999, []),
    }
