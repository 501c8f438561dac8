"""Users of the benches: hashed by scrypt like all others, but at its lowest cost.

A hash says itself what it costs, and 50 ms for each is most of the time of a short test.
What is paid for real passwords is proved by tests/test_users.py and by those of the
commands that write them.
"""

import contextlib
import os
from collections.abc import Iterator

from qos import password_checks
from qos.users import Users, hashed

__all__ = ["cheap_hash", "cheap_users"]

#: The lowest N of scrypt.
_N = 2


def cheap_hash(password: str) -> str:
    """The hash of a password, with a new salt."""
    with _cheap():
        return hashed(password)


def cheap_users(path: str | os.PathLike[str], domain: str) -> Users:
    """The users in a file; for a name that is not in it, a check costs as little."""
    with _cheap():
        return Users(path, domain)


@contextlib.contextmanager
def _cheap() -> Iterator[None]:
    usual = password_checks._N
    password_checks._N = _N
    try:
        yield
    finally:
        password_checks._N = usual
