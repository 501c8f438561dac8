"""Odd entries of folders are results: none ends an audit, and none is left out."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from qos.audit.blocks import blocks_of
from qos.audit.lines import checked_in
from qos.audit.local_folders import files_below
from qos.audit.new_files import each_file, is_to_come
from qos.cli.audit_folders import journals_of, out_of
from qos.cli.output import flush_notes
from qos.errors import UsageError

DAY = "date=2026-01-05"
NAME = "a@x-b1-1.jsonl"


def found(folder: Path) -> dict[str, str]:
    """The reason for which each file is not read, by its path within the folder."""
    return {
        os.path.relpath(entry.path, folder): entry.reason
        for entry in files_below(folder)
    }


def listed(*journals: Path) -> dict[str, tuple[str | None, str]]:
    """The problem of each file, and its reason, by the name of the file."""
    files = each_file(None, [str(journal) for journal in journals], None, None)
    return {Path(file.path).name: (file.problem, file.reason) for file in files}


def test_a_link_that_leads_nowhere_or_to_itself_is_an_entry_with_its_reason(
    tmp_path: Path,
) -> None:
    """Both may come by a copy. A link to a file is as good as the file."""
    (tmp_path / NAME).write_text("x")
    (tmp_path / "link").symlink_to(NAME)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("gone")
    assert found(tmp_path) == {
        NAME: "",
        "link": "",
        "loop": "Too many levels of symbolic links",
        "nowhere": "link to a missing file: No such file or directory",
    }


def test_a_name_that_is_no_utf8_is_an_entry_that_can_be_printed(tmp_path: Path) -> None:
    """Spark takes no such name, and would end with an error of ours."""
    (tmp_path / os.fsdecode(b"lamp\xe9-b1-1.jsonl")).write_text("x")
    folder = tmp_path / os.fsdecode(b"B\xfcro")
    folder.mkdir()
    (folder / NAME).write_text("x")
    not_utf8 = "its name is not UTF-8: rename it"
    assert found(tmp_path) == {
        r"lamp\xe9-b1-1.jsonl": not_utf8,
        rf"B\xfcro/{NAME}": not_utf8,
    }


def test_a_file_that_may_not_be_read_is_an_entry_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It belongs to another user; the tests may run as one who may read everything."""
    (tmp_path / NAME).write_text("x")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert found(tmp_path) == {NAME: "Permission denied"}


def test_a_file_that_is_renamed_just_now_is_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer closes it: at the next look it has its final name."""
    (tmp_path / NAME).write_text("x")
    real = os.stat

    def renamed(path: str, **options: bool) -> os.stat_result:
        if str(path).endswith(NAME):
            (tmp_path / NAME).unlink(missing_ok=True)
        return real(path, **options)

    monkeypatch.setattr(os, "stat", renamed)
    assert found(tmp_path) == {}


def test_folders_behind_links_are_listed_once_and_never_without_an_end(
    tmp_path: Path,
) -> None:
    """A link may lead to a folder above it, or to one that was listed already."""
    day, elsewhere = tmp_path / "journal" / DAY, tmp_path / "elsewhere"
    for folder in (day / "sub", day / ".hidden", elsewhere):
        folder.mkdir(parents=True)
        (folder / NAME).write_text("x")
    (day / "far").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(day)
    (day / "up").symlink_to("..")
    (day / "again").symlink_to("sub")
    paths = set(found(day))
    assert {path for path in paths if path.startswith("far")} == {f"far/{NAME}"}
    assert len(paths) == 2
    assert paths & {f"sub/{NAME}", f"again/{NAME}"}


def test_a_folder_that_cannot_be_listed_is_a_problem_and_others_are_read(
    tmp_path: Path,
) -> None:
    """A mount that is gone, one that is empty, and a day that is a file or a loop."""
    empty, whole = tmp_path / "empty", tmp_path / "whole"
    empty.mkdir()
    (whole / DAY).mkdir(parents=True)
    (whole / DAY / NAME).write_text("x")
    (whole / "date=2026-01-06").write_text("a file")
    (whole / "date=2026-01-07").symlink_to("date=2026-01-07")
    assert listed(tmp_path / "gone", empty, whole) == {
        "gone": ("unread-folder", "No such file or directory"),
        "empty": ("empty-folder", "there is no date=… folder in it"),
        NAME: (None, ""),
        "date=2026-01-06": ("unread-folder", "Not a directory"),
        "date=2026-01-07": ("unread-folder", "Too many levels of symbolic links"),
    }


def test_what_cannot_be_read_now_may_be_read_at_a_later_look(tmp_path: Path) -> None:
    """A follower takes no such file for taken in; one of others or without a line it
    does.
    """
    day = tmp_path / DAY
    day.mkdir()
    for name in (NAME, f".{NAME}", "notes.txt"):
        (day / name).write_text("x")
    (day / "a@x-b1-2.jsonl").write_text("")
    (day / "a@x-b1-3.jsonl").symlink_to("a@x-b1-3.jsonl")
    (day / "b.txt").symlink_to("b.txt")
    files = list(each_file(None, [str(tmp_path), str(tmp_path / "gone")], None, None))
    to_come = {Path(file.path).name: file.problem for file in files if is_to_come(file)}
    assert to_come == {
        f".{NAME}": "open-file",
        "a@x-b1-3.jsonl": "unread-file",
        "gone": "unread-folder",
    }
    assert {file.problem for file in files if not is_to_come(file)} == {
        None,
        "empty-file",
        "foreign-file",
    }


def test_a_folder_whose_name_is_no_utf8_is_refused_with_what_to_do(
    tmp_path: Path,
) -> None:
    """Spark takes no such name. A link to it has another name, which is kept."""
    folder = tmp_path / os.fsdecode(b"B\xfcro")
    (folder / DAY).mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(folder)
    given = Namespace(journals=[str(folder)], out=str(folder), follow=False)
    for folders_of in (journals_of, out_of):
        with pytest.raises(UsageError, match=r"B\\xfcro: its name is not UTF-8, and"):
            folders_of(given)
    given.journals = [f"a@x/1={link}"]
    assert journals_of(given) == [f"a@x/1=file://{link}"]


def test_a_journal_that_cannot_be_read_stops_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mount that is away, a device that has not begun, and a name typed wrongly.

    Each is a problem in the report, and is told: the last one is seen before Spark starts.
    """
    whole, empty, file = tmp_path / "whole", tmp_path / "empty", tmp_path / "file"
    (whole / DAY).mkdir(parents=True)
    empty.mkdir()
    file.write_text("")
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    said = {
        tmp_path / "gone": "there is no such folder",
        empty: "no journal: there is no date=… folder in it",
        file: "there is no such folder",
        loop / ".." / "x": "there is no such folder",
    }
    names = [str(whole), *(f"a@x/1={folder}" for folder in said)]
    given = Namespace(journals=names, out=str(tmp_path / "out"), follow=False)
    last = f"a@x/1=file://{tmp_path}/x"
    assert journals_of(given) == [
        *(name.replace("/", "file:///", 1) for name in names[:1]),
        *(f"a@x/1=file://{folder}" for folder in list(said)[:-1]),
        last,
    ]
    flush_notes()
    assert capsys.readouterr().err.splitlines() == [
        f"xmpp-qos: {folder}: {reason}; it is left out, and a problem in the report"
        for folder, reason in said.items()
    ]
    given.journals = names[1:3]
    with pytest.raises(UsageError, match=r"gone: there is .*; .*empty: no journal: "):
        journals_of(given)


def test_a_journal_that_is_gone_stops_no_follower_that_has_begun(
    tmp_path: Path,
) -> None:
    """Its mount is away; a name that was never there is refused before that."""
    out = tmp_path / "out"
    words: dict[str, Any] = {"journals": [f"a@x/1={tmp_path}/gone"], "out": str(out)}
    for follow in (False, True):
        with pytest.raises(UsageError, match="gone: there is no such folder"):
            journals_of(Namespace(follow=follow, **words))
    (out / ".follow").mkdir(parents=True)
    with pytest.raises(UsageError, match="gone: there is no such folder"):
        journals_of(Namespace(follow=False, **words))
    whole = f"a@x/1=file://{tmp_path}/gone"
    assert journals_of(Namespace(follow=True, **words)) == [whole]


def test_a_file_that_is_removed_before_it_is_read_is_a_problem(tmp_path: Path) -> None:
    """Retention runs beside an audit; so is one whose disk fails while it is read."""
    gone = (tmp_path / NAME).as_uri()
    (block,) = blocks_of(gone, None)
    assert (block.unread, block.lines) == (True, b"No such file or directory")
    content = pa.nulls(1, pa.binary())
    batch = pa.record_batch({"file": pa.array([gone]), "content": content})
    rows = pa.concat_tables(checked_in(batch)).to_pylist()
    assert [(row["problem"], row["example"]) for row in rows] == [
        ("unread-file", "No such file or directory")
    ]
    (tmp_path / NAME).mkdir()
    assert [block.unread for block in blocks_of(gone, None)] == [True]
