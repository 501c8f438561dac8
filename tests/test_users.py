"""The file of users: hashed passwords, read again when it changes."""

import asyncio
import logging
import os
import threading
from pathlib import Path

import pytest

from qos import password_checks
from qos.core import login_queue
from qos.errors import UsageError
from qos.users import TooBusy, Users, hashed, hashed_token, is_name
from waiting import LIMIT_S, until


async def login(
    users: Users, name: str, password: str, *, address: str = ""
) -> str | None:
    """The account of a user, if the password is right."""
    grant = await users.check(name, password, address=address)
    return grant and grant.account


def write(path: Path, *lines: str, mode: int = 0o600) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))
    path.chmod(mode)


async def test_a_name_is_an_account_of_the_service_and_a_jid_is_that_account(
    tmp_path: Path,
) -> None:
    file = tmp_path / "users"
    write(file, "# shops", "", f"Shop:{hashed('a')}", f"boss@example.org:{hashed('b')}")
    users = Users(file, "queue.example.org")
    assert await login(users, "Shop", "a") == "shop@queue.example.org"
    assert await login(users, "boss@example.org", "b") == "boss@example.org"
    for name, password in (("Shop", "b"), ("shop", "a"), ("boss", "b"), ("", "")):
        assert await login(users, name, password) is None


async def test_a_user_without_a_password_has_a_certificate(tmp_path: Path) -> None:
    file = tmp_path / "users"
    write(file, "lamp:*")
    users = Users(file, "x.org")
    assert users.grant("lamp") == ("lamp@x.org", "lamp", "*")
    assert users.grant("other") is None
    for password in ("*", ""):
        assert await login(users, "lamp", password) is None


async def test_a_change_counts_at_once(tmp_path: Path) -> None:
    """A user who is removed does not log in again."""
    file = tmp_path / "users"
    write(file, f"shop:{hashed('a')}")
    users = Users(file, "x.org")
    assert await login(users, "shop", "a")
    write(file, f"other:{hashed('b')}")
    assert await login(users, "shop", "a") is None
    assert await login(users, "other", "b")
    file.unlink()
    assert await login(users, "other", "b") is None


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
     ("@b", False), ("a:b", False), ("a b", False), ("#a", False), ("a#", True)],
)  # fmt: skip
def test_a_name_can_be_an_account(name: str, ok: bool) -> None:
    assert is_name(name) is ok
    assert os.sep not in name or not ok


# -- many at a time --------------------------------------------------------


class Hashes:
    """Instead of scrypt: a check is noted, and takes as long as the test says.

    Attributes:
        checked: the passwords whose checks have begun.
        go_on: a check waits for this; set from the beginning.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checked: list[str] = []
        self.go_on = threading.Event()
        self.go_on.set()
        monkeypatch.setattr(password_checks, "is_right", self.is_right)

    def is_right(self, password: str, _stored: str) -> bool:
        self.checked.append(password)
        self.go_on.wait(LIMIT_S)
        return not password.startswith("wrong")


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> Hashes:
    return Hashes(monkeypatch)


@pytest.fixture
def users(tmp_path: Path) -> Users:
    """The users u0 to u9, of a file that can be changed."""
    stored = hashed("right")
    write(tmp_path / "users", *(f"u{number}:{stored}" for number in range(10)))
    return Users(tmp_path / "users", "x.org")


async def test_many_clients_of_one_user_cost_one_hash(
    users: Users, hashes: Hashes
) -> None:
    """They wait together for the same answer; later ones are known from memory."""
    asked = (
        login(users, "u1", "right", address=f"192.0.2.{number % 5}")
        for number in range(50)
    )
    assert await asyncio.gather(*asked) == ["u1@x.org"] * 50
    assert await login(users, "u1", "right", address="192.0.2.9") == "u1@x.org"
    assert hashes.checked == ["right"]


async def test_wrong_passwords_delay_no_other_account(
    users: Users, hashes: Hashes
) -> None:
    """An attacker with 100 guesses is ahead, at another address and at the same."""
    hashes.go_on.clear()
    guesses = [
        asyncio.ensure_future(
            login(users, "u1", f"wrong {number}", address="192.0.2.1")
        )
        for number in range(100)
    ]
    await asyncio.sleep(0)
    same = asyncio.ensure_future(login(users, "u2", "right 2", address="192.0.2.1"))
    other = asyncio.ensure_future(login(users, "u3", "right 3", address="192.0.2.2"))
    await asyncio.sleep(0)
    hashes.go_on.set()
    assert await same == "u2@x.org"
    assert await other == "u3@x.org"
    assert len(hashes.checked) <= 8, hashes.checked
    for each in guesses:
        each.cancel()


async def test_whoever_does_not_wait_any_more_costs_no_hash(
    users: Users, hashes: Hashes
) -> None:
    hashes.go_on.clear()
    guesses = [
        asyncio.ensure_future(login(users, "u1", f"wrong {number}"))
        for number in range(100)
    ]
    await until(lambda: hashes.checked)
    for each in guesses:
        each.cancel()
    await asyncio.wait(guesses)
    hashes.go_on.set()
    assert await login(users, "u2", "right") == "u2@x.org"
    assert len(hashes.checked) <= 4, hashes.checked


async def test_an_address_that_has_too_many_is_told_so(
    users: Users, hashes: Hashes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the name with the most first; another name and another address get in."""
    users.checks._queue = login_queue.LoginQueue(address_max=10)
    hashes.go_on.clear()
    guesses = [
        asyncio.ensure_future(
            login(users, "u1", f"wrong {number}", address="192.0.2.1")
        )
        for number in range(30)
    ]
    await asyncio.sleep(0)
    same = asyncio.ensure_future(login(users, "u2", "right", address="192.0.2.1"))
    await asyncio.sleep(0)
    hashes.go_on.set()
    assert await same == "u2@x.org"
    assert await login(users, "u3", "right", address="192.0.2.2") == "u3@x.org"
    found = await asyncio.gather(*guesses, return_exceptions=True)
    refused = [each for each in found if isinstance(each, TooBusy)]
    assert 17 <= len(refused) <= 19
    assert "too many passwords of this address wait" in str(refused[0])
    assert found.count(None) == 30 - len(refused)


async def test_a_user_who_is_removed_while_it_waits_does_not_get_in(
    users: Users, hashes: Hashes, tmp_path: Path
) -> None:
    hashes.go_on.clear()
    asked = asyncio.ensure_future(login(users, "u1", "right"))
    await until(lambda: hashes.checked)
    write(tmp_path / "users", f"u2:{hashed('other')}")
    hashes.go_on.set()
    assert await asked is None


async def test_a_password_is_remembered_until_its_user_changes(
    users: Users, hashes: Hashes, tmp_path: Path
) -> None:
    for _ in range(2):
        assert await login(users, "u1", "right")
    write(tmp_path / "users", f"u1:{hashed('another')}", "till:*")
    assert await login(users, "u1", "right")
    assert len(hashes.checked) == 2
    write(tmp_path / "users", "till:*")
    assert await login(users, "u1", "right") is None
    assert await login(users, "till", "right") is None
    assert len(hashes.checked) == 2 + 2


async def test_a_file_that_cannot_be_read_is_said_in_the_log(
    users: Users, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once a minute: a client may come again and again."""
    (tmp_path / "users").chmod(0o644)
    write(tmp_path / "users", f"u1:{hashed_token('t')}", mode=0o644)
    for _ in range(3):
        assert await login(users, "u1", "right") is None
        assert users.grant_of_token("t") is None
    (line,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert line.getMessage().startswith("nobody can log in: ")
    assert "open to all: chmod 600" in line.getMessage()


async def test_a_look_that_fails_is_not_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory ran out once, and users who were removed kept their connections for ever."""
    monkeypatch.setattr("qos.users.LOOK_S", 0.01)
    file = tmp_path / "users"
    write(file, f"shop:{hashed('a')}")
    users = Users(file, "x.org")
    calls = 0

    def changed() -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise MemoryError

    watching = asyncio.create_task(users.watch(changed))
    await asyncio.sleep(0)
    write(file, f"other:{hashed('b')}")
    await until(lambda: calls == 3)
    write(file, f"third:{hashed('c')}")
    await until(lambda: calls == 4)
    watching.cancel()
