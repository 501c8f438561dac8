"""Unique ids: secrets that are wholly random, and keys that grow with time.

A secret (the hold of a message, the token of a lock) has 128 random bits. A key on disk
(the id of a message or an item) begins with the time, like a UUIDv7 (RFC 9562 §5.7). So a
B-tree grows at its end, and a commit changes few pages.

Nobody can guess the 80 random bits behind the time. At a million guesses a second, each
of which a server would have to route, one id of a known millisecond is found after 19
billion years on average. And no rule of the protocol depends on a secret msgId: a message
is stored under its msgId and the sender's JID, which the server stamps, and a release
needs the hold.
"""

from __future__ import annotations

import os
import time

__all__ = ["new_id", "new_key"]

_BYTES = 16
#: Of the 32 hexadecimal digits of a key: milliseconds since 1970, until the year 10889.
_TIME_DIGITS = 12
#: The number of ids drawn at a time. One call into the kernel takes several times as
#: long as everything else here.
_DRAWN = 256

#: Ids are taken from the end: `pop()` is a single step, and so is safe in any thread.
_ids: list[str] = []

# Otherwise a child process would give the same ids as its parent.
os.register_at_fork(after_in_child=_ids.clear)


def new_id() -> str:
    """A new id, in hexadecimal."""
    try:
        return _ids.pop()
    except IndexError:
        bits = os.urandom(_DRAWN * _BYTES).hex()
        ids = [bits[at : at + 2 * _BYTES] for at in range(0, len(bits), 2 * _BYTES)]
        own_id = ids.pop()
        _ids.extend(ids)
        return own_id


def new_key() -> str:
    """Return an id for a key on disk: the time, and 80 random bits, in hexadecimal."""
    milliseconds = time.time_ns() // 1_000_000
    return f"{milliseconds:0{_TIME_DIGITS}x}{new_id()[_TIME_DIGITS:]}"
