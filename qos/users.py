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
import logging
import os
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator
from time import monotonic
from typing import NamedTuple, NoReturn

from qos.core.rate import RateLimit
from qos.core.strings import user_of
from qos.errors import UsageError
from qos.jids import normal_jid
from qos.line_file import LineFile
from qos.password_checks import PasswordChecks, TooBusy, hashed, is_hash

__all__ = [
    "NO_PASSWORD",
    "Grant",
    "TooBusy",
    "Users",
    "account_of",
    "hashed",
    "hashed_token",
    "is_name",
    "new_token",
]

log = logging.getLogger(__name__)

#: Instead of a hash: the user logs in by certificate only.
NO_PASSWORD = "*"  # noqa: S105 - says that there is none

_TOKEN = re.compile("token:[0-9a-f]{64}")

#: Passwords that were right and need not be checked again.
_REMEMBERED_MAX = 1000

#: Seconds between two looks at the file: a user who is removed is cut off within a second.
LOOK_S = 0.8

#: Seconds between two lines of the log about a file that cannot be read.
_LOG_S = 60.0


def hashed_token(token: str) -> str:
    """The hash of a token: it is random, so that nobody can guess it."""
    return f"token:{hashlib.sha256(token.encode()).hexdigest()}"


def new_token() -> str:
    """A new token of 256 random bits."""
    return secrets.token_urlsafe(32)


class _Content(NamedTuple):
    """The content of the file: the hash of each name, and the name of each hash."""

    hashes: dict[str, str]
    names: dict[str, str]


class Grant(NamedTuple):
    """A login that was right, and what it rests on.

    Attributes:
        account: of the user, a bare JID.
        name: of the user.
        stored: the hash of its password or token, or NO_PASSWORD.
    """

    account: str
    name: str
    stored: str


class Users:
    """The users in a file.

    A password takes a while to be checked, and comes with each request of HTTP. So one that
    was right is remembered, as a hash with a key of this process, until its user changes.

    Attributes:
        checks: of passwords.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        domain: str,
        checks: PasswordChecks | None = None,
    ) -> None:
        """Read the file.

        Args:
            path: of the file.
            domain: of the accounts of names without `@`.
            checks: of all doors of a service; None: of these users only.

        Raises:
            UsageError: the file cannot be read, a line is wrong, or others may read it.
        """
        self.checks = checks or PasswordChecks()
        self._domain = domain
        self._file = LineFile(path, _content_of, private=True)
        # A name that does not exist takes as long as one that does.
        self._nobody = hashed("")
        self._key = secrets.token_bytes(32)
        # By name and password, hashed: the stored hash that these have matched.
        self._right: OrderedDict[bytes, str] = OrderedDict()
        self._logged = RateLimit(_LOG_S)
        # The accounts of a content of the file.
        self._accounts_of: _Content | None = None
        self._accounts: frozenset[str] = frozenset()

    def grant(self, name: str) -> Grant | None:
        """The entry of a user; None: there is no such user, or the file is broken."""
        users = self._now()
        if users is None or name not in users.hashes:
            return None
        return self._grant(users, name)

    def _grant(self, users: _Content, name: str) -> Grant:
        return Grant(self._account(name), name, users.hashes[name])

    def grant_of_token(self, token: str) -> Grant | None:
        """The entry of the user with this token; None: there is none."""
        users = self._now()
        if users is None:
            return None
        # By the hash: how long that takes tells nothing about the token.
        name = users.names.get(hashed_token(token))
        return None if name is None else self._grant(users, name)

    def stands(self, grant: Grant) -> bool:
        """Whether a grant still stands: its user is there, with the same secret.

        As long as the file is broken, what it said before counts.
        """
        return self._latest().hashes.get(grant.name) == grant.stored

    def has_account(self, account: str) -> bool:
        """Whether a user has this account; as for `stands`."""
        latest = self._latest()
        if latest is not self._accounts_of:
            self._accounts_of = latest
            self._accounts = frozenset(map(self._account, latest.hashes))
        return account in self._accounts

    async def watch(self, changed: Callable[[], object]) -> NoReturn:
        """Call this within a second after each change of the users."""
        former = self._latest()
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                latest = self._latest()
                if latest is not former:
                    changed()
                    former = latest
            except Exception:
                # Else users who are removed later would never be noticed.
                log.exception("the users could not be looked at")

    async def check(
        self, name: str, password: str, *, address: str = ""
    ) -> Grant | None:
        """The entry of a user, if the password is right; else None.

        Args:
            name: of the user.
            password: to be checked.
            address: of the peer; it pays for the check.

        Raises:
            TooBusy: too many passwords of this address wait to be checked.
        """
        password_hash = self._hash_of(name)
        content = f"{name}\0{password}".encode()
        # A MAC like HMAC, but for so few bytes it keeps the lock of the interpreter, which
        # the thread of the store would take.
        key = hashlib.blake2b(content, key=self._key).digest()
        if password_hash is not None and self._right.get(key) == password_hash:
            self._right.move_to_end(key)
            return self.grant(name)
        right = await self.checks.is_right(
            name, password, password_hash or self._nobody, address=address
        )
        # The file may have changed meanwhile.
        if not right or password_hash is None or self._hash_of(name) != password_hash:
            return None
        self._right[key] = password_hash
        while len(self._right) > _REMEMBERED_MAX:
            self._right.popitem(last=False)
        return self.grant(name)

    def _hash_of(self, name: str) -> str | None:
        """The hash of the password of this user; None: it has none."""
        users = self._now()
        password_hash = None if users is None else users.hashes.get(name)
        return (
            password_hash
            if password_hash is not None and is_hash(password_hash)
            else None
        )

    def _now(self) -> _Content | None:
        """The content of the file; None: it is broken, and the log says so."""
        try:
            return self._file.now()
        except UsageError as error:
            if self._logged.admit("", monotonic()) is not None:
                log.error("nobody can log in: %s", error)
            return None

    def _latest(self) -> _Content:
        """The content of the file; if it is broken, the one before."""
        return self._now() or self._file.last

    def _account(self, name: str) -> str:
        return account_of(name, self._domain)


def _content_of(lines: Iterator[str]) -> _Content:
    hashes = {}
    for line in lines:
        name, _, password_hash = line.strip().partition(":")
        if not (is_name(name) and _is_credential(password_hash)):
            raise ValueError(
                "NAME:HASH is expected, as written by `xmpp-qos queue amqp-user` or "
                "`http-user`"
            )
        hashes[name] = password_hash
    return _Content(
        hashes, {password_hash: name for name, password_hash in hashes.items()}
    )


def account_of(name: str, domain: str) -> str:
    """The account of a user with this name: at our domain, or the JID that it is."""
    return normal_jid(name if "@" in name else f"{name}@{domain}")


def is_name(name: str) -> bool:
    """Whether a user can have this name: the first part of a JID, or a bare JID.

    In the file a line that begins with `#` is a comment.
    """
    try:
        account = normal_jid(name if "@" in name else f"{name}@example.org")
    except ValueError:
        return False
    in_file = ":" not in name and not name.startswith("#")
    return bool(user_of(account)) and "/" not in account and in_file


def _is_credential(entry: str) -> bool:
    return entry == NO_PASSWORD or _TOKEN.fullmatch(entry) is not None or is_hash(entry)
