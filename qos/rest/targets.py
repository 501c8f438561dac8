"""A file of users, each with the JIDs that the user may send to.

    # USER: JID …
    shop: lamp@example.org/kitchen till@example.org
    *: @devices.example.org

`*` are all users. A bare JID stands for all its resources, `@DOMAIN` for all accounts of
a domain. Nobody else may be sent to. The file is read again when it has changed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator

from qos.core.rate import RateLimit
from qos.core.strings import bare, domain_of
from qos.errors import UsageError
from qos.jids import account_or_domain, normal_jid
from qos.line_file import LineFile
from qos.users import account_of, is_name

__all__ = ["Targets"]

log = logging.getLogger(__name__)

_ALL = "*"

#: Seconds between two lines of the log about a broken file, to one account.
_LOG_S = 60.0


class Targets:
    """The JIDs that each user may send to."""

    def __init__(self, path: str | os.PathLike[str], domain: str) -> None:
        """Read the file.

        Args:
            path: of the file.
            domain: of the accounts of names without `@`.

        Raises:
            UsageError: the file cannot be read, or a line is wrong.
        """
        self._domain = domain
        self._file = LineFile(path, self._parse)
        self._logged = RateLimit(_LOG_S)

    def allow(self, account: str, to: str) -> bool:
        """Whether this account may send to this full JID; never if the file is broken."""
        try:
            targets = self._file.now()
        except UsageError as error:
            if self._logged.admit(account, time.monotonic()) is not None:
                log.error("%s may not send, nor anybody else: %s", account, error)
            return False
        forms = {to, bare(to), f"@{domain_of(to)}"}
        return any(
            not forms.isdisjoint(targets.get(name, ())) for name in (account, _ALL)
        )

    def _parse(self, lines: Iterator[str]) -> dict[str, frozenset[str]]:
        targets: dict[str, frozenset[str]] = {}
        for line in lines:
            name, colon, jids = line.partition(":")
            name = name.strip()
            if not colon or not (name == _ALL or is_name(name)):
                raise ValueError("USER: JID … is expected")
            addresses = frozenset(map(_target, jids.split()))
            account = _ALL if name == _ALL else account_of(name, self._domain)
            targets[account] = targets.get(account, frozenset()) | addresses
        return targets


def _target(text: str) -> str:
    """A JID or `@DOMAIN` in its normal form.

    Raises:
        ValueError: it is neither.
    """
    return normal_jid(text) if "/" in text else account_or_domain(text)
