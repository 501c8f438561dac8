"""The file of users: hashed passwords, read again when it changes."""

import os
from pathlib import Path

import pytest

from qos.errors import UsageError
from qos.users import Users, hashed, is_name


def write(path: Path, *lines: str, mode: int = 0o600) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))
    path.chmod(mode)


async def test_a_name_is_an_account_of_the_service_and_a_jid_is_that_account(
    tmp_path: Path,
) -> None:
    file = tmp_path / "users"
    write(file, "# shops", "", f"Shop:{hashed('a')}", f"boss@example.org:{hashed('b')}")
    users = Users(file, "queue.example.org")
    assert await users.check("Shop", "a") == "shop@queue.example.org"
    assert await users.check("boss@example.org", "b") == "boss@example.org"
    for name, password in (("Shop", "b"), ("shop", "a"), ("boss", "b"), ("", "")):
        assert await users.check(name, password) is None


async def test_a_user_without_a_password_has_a_certificate(tmp_path: Path) -> None:
    file = tmp_path / "users"
    write(file, "lamp:*")
    users = Users(file, "x.org")
    assert users.account("lamp") == "lamp@x.org"
    assert users.account("other") is None
    for password in ("*", ""):
        assert await users.check("lamp", password) is None


async def test_a_change_counts_at_once(tmp_path: Path) -> None:
    """A user who is removed does not log in again."""
    file = tmp_path / "users"
    write(file, f"shop:{hashed('a')}")
    users = Users(file, "x.org")
    assert await users.check("shop", "a")
    write(file, f"other:{hashed('b')}")
    assert await users.check("shop", "a") is None
    assert await users.check("other", "b")
    file.unlink()
    assert await users.check("other", "b") is None


@pytest.mark.parametrize(
    "line",
    [
        "shop",
        "shop:secret",
        ":scrypt",
        "a/b:*",
        "a@b/c:*",
        "shop:scrypt:16384:8:1:AAAA",
        "shop:scrypt:x:8:1:AAAA:AAAA",
        "shop:scrypt:1073741824:8:1:AAAA:AAAA",
        "shop:md5:16384:8:1:AAAA:AAAA",
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "users"
    write(file, "", line)
    with pytest.raises(UsageError, match="users, line 2: NAME:HASH is expected"):
        Users(file, "x.org")


def test_a_file_that_all_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "users"
    write(file, mode=0o644)
    with pytest.raises(UsageError, match="open to all: chmod 600"):
        Users(file, "x.org")
    with pytest.raises(UsageError, match="cannot be read"):
        Users(tmp_path / "none", "x.org")


def test_two_hashes_of_a_password_differ() -> None:
    assert hashed("a") != hashed("a")


@pytest.mark.parametrize(
    ("name", "ok"),
    [("shop", True), ("a@b", True), ("a/b", False), ("a@b/c", False), ("", False),
     ("@b", False), ("a:b", False), ("a b", False)],
)  # fmt: skip
def test_a_name_can_be_an_account(name: str, ok: bool) -> None:
    assert is_name(name) is ok
    assert os.sep not in name or not ok
