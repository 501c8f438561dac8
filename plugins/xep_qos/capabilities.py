"""The capabilities of peers (XEP-0115), kept in the store over a restart.

The presence of a peer names its list of features by a hash, the verification string. With
a stored list the peer is not asked (disco#info) before the first message, which saves a
round trip at each start. A list is believed of the account alone that has sent it: two
lists can be made to have the same hash.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Set as AbstractSet

__all__ = ["StoredCapabilities"]

#: In UTF-8, all lists together; the oldest are forgotten first. An account takes as many
#: bytes as its JID has, and a fleet has few kinds of clients. Each new list writes all of
#: them: so the sum must be small.
_BYTES_MAX = 32_768


class StoredCapabilities:
    """Lists of features: by their version, and by the accounts that have sent them.

    The stored form is a JSON object. Its keys are a hash, a space and the verification
    string, its values the features and the accounts, in two lines of words.
    """

    def __init__(
        self,
        stored_text: str,
        remember: Callable[[str], None],
        of_interest: AbstractSet[str],
    ) -> None:
        """Take what was kept.

        Args:
            stored_text: the value that was last given to `remember`, or ''.
            remember: keeps a value in the store.
            of_interest: the features that are kept of a list.
        """
        self._remember = remember
        self._of_interest = of_interest
        self._lists: dict[str, tuple[frozenset[str], dict[str, None]]] = {}
        for version, text in (json.loads(stored_text) if stored_text else {}).items():
            # An earlier form had lists as XML, by the string alone, from anybody.
            if " " in version and text.count("\n") == 1:
                features, accounts = text.split("\n")
                self._lists[version] = (
                    frozenset(features.split()),
                    dict.fromkeys(accounts.split(" ")),
                )

    def features(
        self, account: str, algorithm: str, version: str
    ) -> frozenset[str] | None:
        """The list that an account has sent under this version, or None."""
        features, accounts = self._lists.get(f"{algorithm} {version}", (None, {}))
        return features if account in accounts else None

    def learn(
        self, account: str, algorithm: str, version: str, features: AbstractSet[str]
    ) -> None:
        """Keep a list whose hash has been checked."""
        key, features_kept = (
            f"{algorithm} {version}",
            frozenset(features & self._of_interest),
        )
        former, accounts = self._lists.get(key, (features_kept, {}))
        # Of two lists with one hash, one was made for that: the first stays.
        if not features_kept or former != features_kept or account in accounts:
            return
        accounts[account] = None
        self._lists.pop(key, None)
        self._lists[key] = (features_kept, accounts)
        self._remember(self._to_text())

    def _to_text(self) -> str:
        """The stored form; the oldest accounts of the oldest lists are left out."""
        while True:
            text = json.dumps(
                {
                    version: f"{' '.join(sorted(features))}\n{' '.join(accounts)}"
                    for version, (features, accounts) in self._lists.items()
                },
                ensure_ascii=False,
            )
            if len(text.encode()) <= _BYTES_MAX:
                return text
            version = next(iter(self._lists))
            accounts = self._lists[version][1]
            for account in list(accounts)[: 1 + len(accounts) // 2]:
                del accounts[account]
            if not accounts:
                del self._lists[version]
