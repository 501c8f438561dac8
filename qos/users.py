"""The users of gateways: a file of names, each with the hash of a password.

    # NAME:HASH, or NAME:* for a user who logs in by certificate only
    shop:scrypt:16384:8:1:SALT:KEY
    till:token:SHA256
    lamp@example.org:*

A name without `@` is an account at the domain of the service. A JID is that account: its
owner shares the rights that it has by XMPP. The file is read again when it has changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import NamedTuple

from qos.errors import UsageError
from qos.jids import normal_jid
from qos.line_file import LineFile

__all__ = [
    "NO_PASSWORD",
    "Users",
    "account_of",
    "hashed",
    "hashed_token",
    "is_name",
    "new_token",
]

#: The cost of scrypt (RFC 7914 §2): 16 MiB and some 50 ms for each login.
_N, _R, _P = 2**14, 8, 1
_MEMORY_MAX = 64 * 1024 * 1024
_KEY_BYTES = 32

#: Instead of a hash: the user logs in by certificate only.
NO_PASSWORD = "*"  # noqa: S105 - says that there is none

_TOKEN = re.compile("token:[0-9a-f]{64}")

#: The most logins that are checked at a time, so that they leave a processor to others.
_CHECKS_MAX = 2


def hashed(password: str) -> str:
    """The hash of a password, with a new salt."""
    salt = secrets.token_bytes(16)
    key = _key(password, salt, _N, _R, _P)
    coded = (b64encode(each).decode() for each in (salt, key))
    return ":".join(("scrypt", str(_N), str(_R), str(_P), *coded))


def hashed_token(token: str) -> str:
    """The hash of a token: it is random, so that nobody can guess it."""
    return f"token:{hashlib.sha256(token.encode()).hexdigest()}"


def new_token() -> str:
    """A new token of 256 random bits."""
    return secrets.token_urlsafe(32)


def _key(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode(),
        salt=salt,
        n=n,
        r=r,
        p=p,
        maxmem=_MEMORY_MAX,
        dklen=_KEY_BYTES,
    )


class _Stored(NamedTuple):
    """The content of the file: the hash of each name, and the name of each hash."""

    hashes: dict[str, str]
    names: dict[str, str]


class Users:
    """The users in a file."""

    def __init__(self, path: str | os.PathLike[str], domain: str) -> None:
        """Read the file.

        Args:
            path: of the file.
            domain: of the accounts of names without `@`.

        Raises:
            UsageError: the file cannot be read, a line is wrong, or others may read it.
        """
        self._domain = domain
        self._file = LineFile(path, _stored_users, private=True)
        # A name that does not exist takes as long as one that does.
        self._nobody = hashed("")
        self._checks = asyncio.Semaphore(_CHECKS_MAX)

    def account(self, name: str) -> str | None:
        """The account of this user; None: there is none, or the file is broken."""
        try:
            users = self._file.now()
        except UsageError:
            return None
        return self._account(name) if name in users.hashes else None

    def stored(self, name: str) -> str | None:
        """What is stored for this user: it changes with each new password."""
        return self._file.last.hashes.get(name)

    def account_of_token(self, token: str) -> str | None:
        """The account of the user with this token; None: there is none."""
        try:
            users = self._file.now()
        except UsageError:
            return None
        # By the hash: how long that takes tells nothing about the token.
        name = users.names.get(hashed_token(token))
        return None if name is None else self._account(name)

    async def check(self, name: str, password: str) -> str | None:
        """The account of this user, if the password is right; else None."""
        account = self.account(name)
        stored = self._file.last.hashes.get(name, self._nobody)
        has_password = _parts(stored) is not None and account is not None
        async with self._checks:
            right = await asyncio.to_thread(
                _is_right, password, stored if has_password else self._nobody
            )
        return account if right and has_password else None

    def _account(self, name: str) -> str:
        return account_of(name, self._domain)


def _stored_users(lines: Iterator[str]) -> _Stored:
    hashes = {}
    for line in lines:
        name, _, stored = line.strip().partition(":")
        if not (is_name(name) and _is_stored(stored)):
            raise ValueError(
                "NAME:HASH is expected, as written by `xmpp-qos queue amqp-user` or "
                "`http-user`"
            )
        hashes[name] = stored
    return _Stored(hashes, {stored: name for name, stored in hashes.items()})


def account_of(name: str, domain: str) -> str:
    """The account of a user with this name: at our domain, or the JID that it is."""
    return normal_jid(name if "@" in name else f"{name}@{domain}")


def is_name(name: str) -> bool:
    """Whether a user can have this name: the first part of a JID, or a bare JID."""
    try:
        account = normal_jid(name if "@" in name else f"{name}@example.org")
    except ValueError:
        return False
    user, at, _ = account.partition("@")
    return bool(user and at) and "/" not in account and ":" not in name


def _is_stored(stored: str) -> bool:
    return (
        stored == NO_PASSWORD
        or _TOKEN.fullmatch(stored) is not None
        or _parts(stored) is not None
    )


def _parts(stored: str) -> tuple[int, int, int, bytes, bytes] | None:
    try:
        kind, n, r, p, salt, key = stored.split(":")
        found = (int(n), int(r), int(p), b64decode(salt), b64decode(key))
    except ValueError:
        return None
    return (
        found if kind == "scrypt" and 128 * found[0] * found[1] < _MEMORY_MAX else None
    )


def _is_right(password: str, stored: str) -> bool:
    parts = _parts(stored)
    assert parts is not None
    n, r, p, salt, key = parts
    return hmac.compare_digest(_key(password, salt, n, r, p), key)
