"""JIDs named by applications, people and requests: checked, and brought to normal form.

Everywhere else JIDs are compared as text. In normal form two spellings of one JID are
the same text (RFC 7622 §3.2).
"""

from __future__ import annotations

import re
from encodings import idna
from functools import lru_cache

from slixmpp import JID, InvalidJID

from qos.errors import InvalidArgument

__all__ = ["account_or_domain", "jid_of", "normal_jid"]

#: The JIDs whose normal form is remembered: an application names few, again and again.
_JIDS_MAX = 1024

#: The label separators of IDNA (RFC 3490 §3.1).
_DOTS = re.compile("[.\u3002\uff0e\uff61]")


def jid_of(name: str, value: object) -> str:
    """A JID in its normal form: as servers write it, to compare with incoming JIDs.

    Args:
        name: of the argument, for the error.
        value: the JID (RFC 7622).

    Raises:
        InvalidArgument: the value is empty, or is not a JID.
    """
    if not isinstance(value, str | JID):
        raise InvalidArgument(name, value, "a JID")
    if not value:
        raise InvalidArgument(name, value, "a JID, such as lamp@example.org/1")
    try:
        return normal_jid(str(value))
    except ValueError as error:
        why = str(error.__cause__ or error)
        raise InvalidArgument(name, value, "a JID", why=why) from error


@lru_cache(_JIDS_MAX)
def normal_jid(text: str) -> str:
    """The JID, bare or full, in its normal form.

    slixmpp normalizes case, width and forbidden characters. In addition, a dot at the
    end of the domain is removed, and the labels of the domain are in Unicode, not in
    Punycode.

    Raises:
        ValueError: the text is no JID.
    """
    account, slash, resource = text.partition("/")
    user, at, domain = account.rpartition("@")
    labels = _DOTS.split(domain)
    if len(labels) > 1 and not labels[-1]:
        del labels[-1]
    try:
        if not all(labels):
            raise InvalidJID("the domain has an empty label")
        domain = ".".join(map(_in_unicode, labels))
        return str(JID(f"{user}{at}{domain}{slash}{resource}"))
    except (InvalidJID, UnicodeError) as error:
        raise ValueError(f"{text[:100]!r} is not a JID") from error


def account_or_domain(text: str) -> str:
    """An account, or `@DOMAIN` for all accounts of a domain, in its normal form.

    Raises:
        ValueError: the text is neither.
    """
    user, at, domain = text.strip().partition("@")
    if not at:
        raise ValueError(
            f"{text.strip()[:100]!r} is neither an account (user@example.org) nor all "
            "accounts of a domain (@example.org)"
        )
    if not user:
        return f"@{normal_jid(domain)}"
    return normal_jid(f"{user}@{domain}").partition("/")[0]


def _in_unicode(label: str) -> str:
    low = label.lower()
    return idna.ToUnicode(low) if low.startswith("xn--") else label
