"""Strings that come from others: the parts of a JID, id lengths, one-line texts.

A JID is split here and nowhere else (`tests/core/test_strings.py`); `qos.jids` checks one
and brings it to normal form.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

__all__ = [
    "ID_CHARS_MAX",
    "bare",
    "domain_of",
    "one_line",
    "own_servers",
    "resource_of",
    "user_of",
    "utf8_size",
]

#: The longest msgId, mark or hold. It has room for a hash of a message with a prefix,
#: which the proto-XEP allows for both, and is short enough that held ids cost almost
#: nothing.
ID_CHARS_MAX = 1024


#: The JIDs whose accounts, and whose domains, are remembered. A JID has at most 3,071
#: bytes.
_SPLIT_MAX = 1024

#: The text of a stanza error is cut to this many characters.
_TEXT_CHARS_MAX = 500


def _bare(jid: str) -> str:
    return jid.partition("/")[0]


def _domain_of(jid: str) -> str:
    return _bare(jid).rpartition("@")[2]


#: The account of a JID: everything before the resource. The JIDs that were split last are
#: remembered: on the way of one item the same JID is asked for its account 50 times.
bare: Callable[[str], str] = lru_cache(_SPLIT_MAX)(_bare)

#: The domain of a JID, bare or full; remembered like its account.
domain_of: Callable[[str], str] = lru_cache(_SPLIT_MAX)(_domain_of)


def user_of(jid: str) -> str:
    """The part before the @, the localpart of RFC 7622; '' for a domain."""
    return bare(jid).rpartition("@")[0]


def resource_of(jid: str) -> str:
    """The part behind the first slash; '' for a bare JID."""
    return jid.partition("/")[2]


def utf8_size(text: str) -> int:
    """The bytes of a text in UTF-8."""
    # Nearly all long texts are ASCII: then nothing is copied.
    return len(text) if text.isascii() else len(text.encode())


def own_servers(own: str) -> frozenset[str]:
    """The servers that may answer for an absent peer: the server of our own JID."""
    return frozenset({"", bare(own), domain_of(own)})


def one_line(text: str) -> str:
    """A text from somebody else as one short line without control characters."""
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())[:_TEXT_CHARS_MAX]
