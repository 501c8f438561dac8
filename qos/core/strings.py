"""Strings of others: how long an id may be, the account of a JID, a text in one line."""

from __future__ import annotations

__all__ = ["ID_CHARS_MAX", "bare", "one_line", "own_servers"]

#: For a msgId, a mark or a hold. Long enough for a hash of a message with a
#: prefix (the text allows both); short enough that held ids cost nothing.
ID_CHARS_MAX = 1024


#: The text of a stanza error is kept to this length.
_TEXT_CHARS_MAX = 500


def bare(jid: str) -> str:
    """The account of a JID: all before the resource."""
    return jid.partition("/")[0]


def own_servers(own: str) -> frozenset[str]:
    """Who answers in the place of a peer that is away: the server of our own JID."""
    return frozenset({"", bare(own), bare(own).rpartition("@")[2]})


def one_line(text: str) -> str:
    """A text of somebody else as one short line without control characters."""
    printable = "".join(each if each.isprintable() else " " for each in text)
    return " ".join(printable.split())[:_TEXT_CHARS_MAX]
