"""The account of a request: `Authorization` with a password (RFC 7617) or a token (RFC 6750)."""

from __future__ import annotations

import binascii
from base64 import b64decode

from qos.users import Grant, Users

__all__ = ["CHALLENGES", "Login"]

#: The values of `WWW-Authenticate`.
CHALLENGES = ('Basic realm="xmpp-qos", charset="UTF-8"', 'Bearer realm="xmpp-qos"')


class Login:
    """Finds the user of a request."""

    def __init__(self, users: Users) -> None:
        self._users = users

    async def grant(self, authorization: str, *, address: str) -> Grant | None:
        """The entry of the user; None: the user is unknown, or the secret is wrong.

        Args:
            authorization: the header.
            address: of the client; it pays for the check of a password.

        Raises:
            TooBusy: too many passwords of this address wait to be checked.
        """
        scheme, _, credentials = authorization.strip().partition(" ")
        if scheme.lower() == "bearer":
            return self._users.grant_of_token(credentials.strip())
        if scheme.lower() != "basic":
            return None
        try:
            name, colon, password = (
                b64decode(credentials.strip()).decode().partition(":")
            )
        except (binascii.Error, ValueError):
            return None
        if not colon:
            return None
        return await self._users.check(name, password, address=address)
