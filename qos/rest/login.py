"""The account of a request: `Authorization` with a password (RFC 7617) or a token (RFC 6750)."""

from __future__ import annotations

import binascii
import hashlib
import secrets
from base64 import b64decode
from collections import OrderedDict

from qos.rest import bounds
from qos.users import Users

__all__ = ["CHALLENGES", "Login"]

#: The values of `WWW-Authenticate`.
CHALLENGES = ('Basic realm="xmpp-qos", charset="UTF-8"', 'Bearer realm="xmpp-qos"')


class Login:
    """Finds the account of a request.

    A password takes a while to be checked, and comes with each request. So one that was
    right is remembered, as a hash with a key of this process, until its user changes.
    """

    def __init__(self, users: Users) -> None:
        self._users = users
        self._key = secrets.token_bytes(32)
        # By name and password, hashed: the stored hash that these have matched.
        self._right: OrderedDict[bytes, str] = OrderedDict()

    async def account(self, authorization: str) -> str | None:
        """The bare JID of the user; None: the user is unknown, or the secret is wrong."""
        scheme, _, given = authorization.strip().partition(" ")
        if scheme.lower() == "bearer":
            return self._users.account_of_token(given.strip())
        if scheme.lower() != "basic":
            return None
        try:
            name, colon, password = b64decode(given.strip()).decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        return await self._checked(name, password) if colon else None

    async def _checked(self, name: str, password: str) -> str | None:
        account, stored = self._users.account(name), self._users.stored(name)
        content = f"{name}\0{password}".encode()
        # A MAC like HMAC, but for so few bytes it keeps the lock of the interpreter, which
        # the thread of the store would take.
        key = hashlib.blake2b(content, key=self._key).digest()
        if account is not None and self._right.get(key) == stored:
            self._right.move_to_end(key)
            return account
        account = await self._users.check(name, password)
        if account is not None and stored is not None:
            self._right[key] = stored
            while len(self._right) > bounds.LOGINS_MAX:
                self._right.popitem(last=False)
        return account
