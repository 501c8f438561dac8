"""A file of lines that is read again when it has changed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from qos.errors import UsageError
from qos.line_file import LineFile


def numbers(lines: Iterator[str]) -> list[int]:
    return [int(line) for line in lines]


def test_empty_lines_and_comments_say_nothing(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_text("# of today\n1\n\n  \n2\n")
    assert LineFile(path, numbers).now() == [1, 2]


def test_it_is_read_again_when_it_has_changed_and_only_then(tmp_path: Path) -> None:
    """It is asked for each login, and reading it takes longer than looking at it."""
    path = tmp_path / "numbers"
    path.write_text("1\n")
    file = LineFile(path, numbers)
    assert file.now() is file.now()
    path.write_text("1\n2\n")
    assert file.now() == [1, 2]


def test_a_wrong_line_is_named_until_it_is_mended(tmp_path: Path) -> None:
    """Meanwhile the earlier content does not count; it is still there as `last`."""
    path = tmp_path / "numbers"
    path.write_text("1\n")
    file = LineFile(path, numbers)
    path.write_text("# changed\n1\ntwo\n3\n")
    for _ in range(2):
        with pytest.raises(UsageError, match="numbers, line 3: invalid literal"):
            file.now()
        assert file.last == [1]
    path.write_text("# changed\n1\n2\n3\n")
    assert file.now() == [1, 2, 3]


def test_a_file_that_is_gone_or_is_no_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_text("1\n")
    file = LineFile(path, numbers)
    path.write_bytes(b"\xff\n")
    with pytest.raises(UsageError, match="numbers cannot be read"):
        file.now()
    path.unlink()
    with pytest.raises(UsageError, match="numbers cannot be read"):
        file.now()


def test_a_private_file_that_others_may_use_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    path.write_text("1\n")
    path.chmod(0o604)
    with pytest.raises(UsageError, match="secrets is open to all: chmod 600"):
        LineFile(path, numbers, private=True)
    path.chmod(0o600)
    assert LineFile(path, numbers, private=True).now() == [1]
