"""The options of the plugin, checked."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Required, TypeAlias, TypedDict

from qos import arguments
from qos.core.backoff import Backoff
from qos.core.message.batch import ELEMENTS_MAX
from qos.core.message.model import NAMESPACES
from qos.core.message.trust import TrustPolicy
from qos.core.quota import Quotas
from qos.engine import InboxLimits, OutboxLimits
from qos.errors import InvalidArgument
from qos.jids import jid_of
from qos.stores import store_from_url
from qos.stores.base import Store

__all__ = ["Options", "Settings", "TrustCallback"]

log = logging.getLogger(__name__)

#: Gets the full JID of a sender and decides; may be a coroutine function.
TrustCallback: TypeAlias = Callable[[str], bool | Awaitable[bool]]

#: Durations, each more than 0.
_SECONDS = (
    "retry_first_s",
    "retry_max_s",
    "hold_ttl_s",
    "tombstone_ttl_s",
    "event_interval_s",
    "outcome_ttl_s",
)

#: The whole numbers, and the smallest permitted value of each.
_LEAST: dict[str, int] = {
    "quota_messages": 0,
    "quota_bytes": 0,
    "quota_total_messages": 0,
    "quota_total_bytes": 0,
    "quota_domain_messages": 0,
    "quota_domain_bytes": 0,
    "tombstones_max": 1,
    "window_max": 1,
    "outbox_messages_max": 1,
    "outbox_bytes_max": 1,
    "outcomes_max": 0,
    "stanza_bytes_max": 1_000,
}

_FLAGS = ("receives", "ordered", "write_acknowledged")

_BACKOFF, _QUOTAS = Backoff(), Quotas()
_INBOX, _OUTBOX = InboxLimits(), OutboxLimits()


class Options(TypedDict, total=False):
    """The options of `qos.connect`, for type checkers and editors; see `Settings`.

    Its parameter `receives` is one of its own.
    """

    store: Required[str | Store]
    retry_first_s: float
    retry_max_s: float
    deadline_s: float | None
    ordered: bool
    namespaces: Sequence[str]
    trust: str | Collection[str] | TrustCallback
    accepts: Literal["trusted", "anyone"]
    quota_messages: int
    quota_bytes: int
    quota_total_messages: int
    quota_total_bytes: int
    quota_domain_messages: int
    quota_domain_bytes: int
    hold_ttl_s: float
    tombstones_max: int
    tombstone_ttl_s: float
    write_acknowledged: bool
    window_max: int
    outbox_messages_max: int
    outbox_bytes_max: int
    outcomes_max: int
    outcome_ttl_s: float
    stanza_bytes_max: int
    batch_max: int
    event_log_to: str | None
    event_interval_s: float
    journal: str | os.PathLike[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options, by the names that `register_plugin` accepts.

    Attributes:
        store: `files:DIR`, `sqlite:PATH`, or a Store that is not open; or `memory:`,
            which loses its messages with the process. `qos.connect` demands a choice;
            the plugin says in the log that it keeps them in memory.
        receives: whether to receive messages. If not, the endpoint only sends: it
            advertises nothing, refuses each request with service-unavailable, so that
            its sender tries again, and leaves received messages in the store as they
            are.
        retry_first_s: the first delay between two attempts, and the shortest.
        retry_max_s: the longest delay.
        deadline_s: the time after which a message that has not been delivered ends;
            None: never. Each message can have its own.
        ordered: whether to release the messages to one account in the order of sending.
        namespaces: those of QoS to use, the preferred first.
        trust: the senders whose messages are accepted: a list of `contacts` (accounts
            with a subscription in the roster) and JIDs: `a@b`, `c@d/e`, the domain of a
            service (it needs a dot, or is `localhost`), or `@d` for all accounts of a
            domain. Or `anyone`, `nobody`, or a function of the full JID. The own
            account is trusted in any case.
        accepts: `trusted`: trust counts at each level. `anyone`: it counts for assured
            messages, which are held. The plugin leaves plain messages alone: they
            are other applications' too. (`qos.connect` does not.)
        quota_messages: the most messages held of one account.
        quota_bytes: the most bytes of payload held of one account.
        quota_total_messages: the most messages held of all accounts.
        quota_total_bytes: the most bytes of payload held of all accounts.
        quota_domain_messages: the most messages held of all accounts of one domain that
            is not our own; never less than quota_messages.
        quota_domain_bytes: likewise, bytes of payload; never less than quota_bytes.
        hold_ttl_s: how long a message is held for its sender to release it.
        tombstones_max: the most ended messages that are remembered.
        tombstone_ttl_s: how long they are remembered.
        write_acknowledged: whether to write a message at level acknowledged before it
            is answered. If not, a crash may lose acknowledged messages.
        window_max: the most messages in flight to one account; a receiver's credit opens
            the window no further.
        outbox_messages_max: the most outstanding messages.
        outbox_bytes_max: the most bytes of outstanding payload.
        outcomes_max: the number of messages, of those accepted last, whose outcomes are
            kept for `XEP_QOS.outcome`; 0: none.
        outcome_ttl_s: how long outcomes are kept.
        stanza_bytes_max: the server's limit; a larger message is refused.
        batch_max: the most requests in one stanza to a peer that accepts batches; 1:
            batches are neither sent nor accepted.
        event_log_to: a JID that gets each refusal and abuse by XEP-0337.
        event_interval_s: at most one such event per source in this time.
        journal: a folder for the journal (`qos.journal`); None: no journal.
    """

    store: str | Store = "memory:"
    receives: bool = True
    retry_first_s: float = _BACKOFF.first_s
    retry_max_s: float = _BACKOFF.max_s
    deadline_s: float | None = None
    ordered: bool = False
    namespaces: Sequence[str] = NAMESPACES
    trust: str | Collection[str] | TrustCallback = "contacts"
    accepts: Literal["trusted", "anyone"] = "trusted"
    quota_messages: int = _QUOTAS.messages
    quota_bytes: int = _QUOTAS.bytes
    quota_total_messages: int = _QUOTAS.total_messages
    quota_total_bytes: int = _QUOTAS.total_bytes
    quota_domain_messages: int = _QUOTAS.domain_messages
    quota_domain_bytes: int = _QUOTAS.domain_bytes
    hold_ttl_s: float = _INBOX.hold_ttl_s
    tombstones_max: int = _INBOX.tombstones
    tombstone_ttl_s: float = _INBOX.tombstone_ttl_s
    write_acknowledged: bool = _INBOX.write_acknowledged
    window_max: int = _OUTBOX.window
    outbox_messages_max: int = _OUTBOX.messages
    outbox_bytes_max: int = _OUTBOX.bytes
    outcomes_max: int = _OUTBOX.outcomes
    outcome_ttl_s: float = _OUTBOX.outcome_ttl_s
    #: Prosody's default for clients, the strictest of the common servers.
    stanza_bytes_max: int = 256 * 1024
    batch_max: int = 32
    event_log_to: str | None = None
    event_interval_s: float = 60.0
    journal: str | os.PathLike[str] | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Settings:
        """Check the options given to register_plugin.

        Raises:
            ValueError: an option is unknown or has a wrong value; the message names it.
        """
        options = {field.name for field in fields(cls)}
        for name in config:
            if name not in options:
                raise ValueError(
                    f"xep_qos has no option {name!r}; it has {', '.join(sorted(options))}"
                )
        if "store" not in config:
            log.warning(
                "messages are kept in memory, and lost with the process: say "
                "store='sqlite:PATH', or store='memory:' if that is meant"
            )
        return cls(**config)

    def __post_init__(self) -> None:
        """Raise ValueError for a value that is not permitted; the message names it."""
        for name in _SECONDS:
            arguments.seconds(name, getattr(self, name))
        for name, least in _LEAST.items():
            arguments.whole(name, getattr(self, name), least=least)
        for name in _FLAGS:
            arguments.flag(name, getattr(self, name))
        arguments.whole("batch_max", self.batch_max, least=1, most=ELEMENTS_MAX)
        if self.deadline_s is not None:
            arguments.seconds("deadline_s", self.deadline_s)
        if self.retry_max_s < self.retry_first_s:
            raise ValueError(
                f"retry_max_s must be at least retry_first_s, {self.retry_first_s}: "
                f"{self.retry_max_s}"
            )
        _check_namespaces(self.namespaces)
        if self.accepts not in ("trusted", "anyone"):
            raise InvalidArgument("accepts", self.accepts, "'trusted' or 'anyone'")
        if self.event_log_to is not None:
            jid_of("event_log_to", self.event_log_to)
        if self.journal is not None:
            arguments.path("journal", self.journal)
        if not isinstance(self.store, str) and not _is_store(self.store):
            raise InvalidArgument("store", self.store, "a URL or a Store")
        checks: tuple[tuple[str, Callable[[Any], object]], ...] = (
            ("trust", policy_of),
            ("store", store_of),
        )
        for name, check in checks:
            try:
                check(getattr(self, name))
            except ValueError as error:
                text = str(error)
                message = text if text.startswith(name) else f"{name}: {text}"
                raise ValueError(message) from error

    @property
    def backoff(self) -> Backoff:
        """The delays between attempts."""
        return Backoff(first_s=self.retry_first_s, max_s=self.retry_max_s)

    @property
    def outbox_limits(self) -> OutboxLimits:
        """The limits for outstanding messages."""
        return OutboxLimits(
            messages=self.outbox_messages_max,
            bytes=self.outbox_bytes_max,
            window=self.window_max,
            outcomes=self.outcomes_max,
            outcome_ttl_s=self.outcome_ttl_s,
        )

    @property
    def inbox_limits(self) -> InboxLimits:
        """The limits for held messages."""
        return InboxLimits(
            quotas=Quotas(
                messages=self.quota_messages,
                bytes=self.quota_bytes,
                total_messages=self.quota_total_messages,
                total_bytes=self.quota_total_bytes,
                domain_messages=self.quota_domain_messages,
                domain_bytes=self.quota_domain_bytes,
            ),
            hold_ttl_s=self.hold_ttl_s,
            tombstones=self.tombstones_max,
            tombstone_ttl_s=self.tombstone_ttl_s,
            write_acknowledged=self.write_acknowledged,
        )


def policy_of(
    trust: str | Collection[str] | TrustCallback,
) -> TrustPolicy | TrustCallback:
    """The rule that a user has written, or the user's function."""
    return trust if callable(trust) else TrustPolicy.parse(trust)


def store_of(store: str | Store) -> Store:
    """The store that a user has named, not open yet."""
    return store_from_url(store) if isinstance(store, str) else store


def _is_store(value: object) -> bool:
    return callable(getattr(value, "open", None)) and not isinstance(value, type)


def _check_namespaces(namespaces: Sequence[str]) -> None:
    is_list = isinstance(namespaces, list | tuple) and len(namespaces) > 0
    if not is_list or not all(namespace in NAMESPACES for namespace in namespaces):
        expected = f"a list of some of {', '.join(NAMESPACES)}"
        raise InvalidArgument("namespaces", namespaces, expected)
