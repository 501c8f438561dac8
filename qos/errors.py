"""Every error a user of this library can meet.

::

    QosError
    ├── LocalProtocolError        the caller asked for what cannot be
    │   ├── InvalidArgument       an argument has a wrong type or value; a ValueError
    │   ├── MessageTooLarge       over the server's stanza limit
    │   ├── OutboxFull            the outbox is bounded, and it is full
    │   ├── UnknownMessage        no such message in the store
    │   ├── AmbiguousMessage      several senders have used this id
    │   └── CannotWithdraw        it may have been handed over already
    ├── RemoteProtocolError       the peer broke the protocol; has the answer
    ├── DeliveryFailed            how a message ended, other than delivered
    │   ├── NotDelivered          certainly not
    │   └── InDoubt               it may have been
    ├── CannotConnect             no session with the server, and none to be expected
    ├── StillOutstanding          the end was awaited, and the plugin closed before it
    ├── RequestFailed             a service did not do what it was asked
    │   ├── RequestRefused        it said why
    │   └── NoAnswer              it said nothing: it may have done it
    ├── JobLost                   a worker's item is not its own any more
    ├── UnrecoverableError        for a worker's handler to raise: it cannot go on
    ├── UsageError                an option of a command, or of a format of Spark
    ├── JournalError              the folder of the journal; names the file
    └── StoreError                the disk; always names the store
        ├── StoreInUse            another process has it open
        ├── StoreTooNew           written by a newer version
        ├── StoreDamaged          not ours, or broken
        ├── StoreReadOnly         cannot be written
        └── StoreFull             no space left
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from typing import Literal

__all__ = [
    "AmbiguousMessage",
    "CannotConnect",
    "CannotWithdraw",
    "DeliveryFailed",
    "InDoubt",
    "InvalidArgument",
    "JobLost",
    "JournalError",
    "LocalProtocolError",
    "MessageTooLarge",
    "NoAnswer",
    "NotDelivered",
    "OutboxFull",
    "QosError",
    "RemoteProtocolError",
    "RequestFailed",
    "RequestRefused",
    "StillOutstanding",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreInUse",
    "StoreReadOnly",
    "StoreTooNew",
    "UnknownMessage",
    "UnrecoverableError",
    "UsageError",
]

#: A value in the text of an error: long enough for a JID or a path.
_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 120

ErrorType = Literal["auth", "cancel", "continue", "modify", "wait"]


class QosError(Exception):
    """The base of all errors of this library."""


class LocalProtocolError(QosError):
    """The caller asked for something that cannot be done. Nothing was changed."""


class InvalidArgument(LocalProtocolError, ValueError):
    """An argument or option has a type or a value that is not allowed.

    Nothing was sent, stored or started. One error for both, so that `except ValueError`
    is enough. The text shows the beginning and the end of a long value.

    Attributes:
        name: of the argument or option.
        value: as it was given; its type alone where it is private (a payload, say).
        expected: what is allowed, in words.
    """

    def __init__(
        self, name: str, value: object, expected: str, *, why: str = ""
    ) -> None:
        """Make the text of these.

        Args:
            name: of the argument or option.
            value: as it was given.
            expected: what is allowed, in words that follow "must be".
            why: what is wrong with the value, where `expected` does not say it all.
        """
        reason = f" ({why})" if why else ""
        given = "" if value is str else f": {_shown.repr(value)}"
        super().__init__(f"{name} must be {expected}{given}{reason}")
        self.name = name
        self.value = value
        self.expected = expected


class MessageTooLarge(LocalProtocolError):
    """A message would break the server's limit, and so the whole stream.

    Attributes:
        to: the JID it was for.
        size: bytes of the stanza as it would be sent.
        limit: bytes that the server takes.
    """

    def __init__(self, to: str, *, size: int, limit: int) -> None:
        super().__init__(
            f"the message to {to} takes {size} bytes as a stanza, "
            f"over the limit of {limit}"
        )
        self.to = to
        self.size = size
        self.limit = limit


class OutboxFull(LocalProtocolError):
    """The outbox holds as much as it may; nothing was accepted.

    Attributes:
        unit: what there is too much of.
        limit: how much there may be.
    """

    def __init__(self, *, unit: Literal["messages", "bytes"], limit: int) -> None:
        super().__init__(f"the outbox is full: its limit is {limit} {unit}")
        self.unit = unit
        self.limit = limit


class UnknownMessage(LocalProtocolError):
    """The store has no message with this id (or it has ended).

    Attributes:
        msg_id: the id.
    """

    def __init__(self, msg_id: str) -> None:
        super().__init__(f"no message {msg_id!r} in the store")
        self.msg_id = msg_id


class AmbiguousMessage(LocalProtocolError):
    """Several messages have this id: it is only unique with its sender.

    Attributes:
        msg_id: the id.
        senders: the full JIDs of the senders, sorted.
    """

    def __init__(self, msg_id: str, *, senders: Sequence[str]) -> None:
        super().__init__(
            f"several messages have the id {msg_id!r}, from {', '.join(senders)}"
        )
        self.msg_id = msg_id
        self.senders = tuple(senders)


class CannotWithdraw(LocalProtocolError):
    """The message may have been handed over already, so it goes on.

    Attributes:
        msg_id: its id.
        state: where it stands: the value of a `qos.OutgoingState`.
    """

    def __init__(self, msg_id: str, *, state: str) -> None:
        super().__init__(
            f"{msg_id!r} cannot be withdrawn: state is {state}, and the peer "
            "may have acted on it"
        )
        self.msg_id = msg_id
        self.state = state


class RemoteProtocolError(QosError):
    """A peer broke the protocol.

    Attributes:
        condition: RFC 6120 §8.3.3, what to answer with.
        type: RFC 6120 §8.3.2, the error type to answer with.
    """

    def __init__(self, text: str, *, condition: str, type: ErrorType) -> None:  # noqa: A002
        super().__init__(text)
        self.condition = condition
        self.type: ErrorType = type


class DeliveryFailed(QosError):
    """A message ended, and was not delivered.

    Attributes:
        msg_id: its id.
        to: the JID as the application gave it.
        level: the word for its level, as ``qos.Level(level)`` takes it.
        attempts: iqs sent for it, repeats included.
        condition: the stanza error that decided, or None (a deadline, say).
        by: the JID that sent this error, or None.
        text: what this error says for people, one line, or None.
    """

    _ended = "failed"

    def __init__(
        self,
        msg_id: str,
        *,
        to: str,
        level: str,
        attempts: int,
        condition: str | None = None,
        by: str | None = None,
        text: str | None = None,
    ) -> None:
        reason = why_not_delivered(
            to=to, attempts=attempts, condition=condition, by=by, text=text
        )
        super().__init__(
            f"{msg_id!r} to {to} {self._ended} after {attempts} attempts: {reason}"
        )
        self.msg_id = msg_id
        self.to = to
        self.level = level
        self.attempts = attempts
        self.condition = condition
        self.by = by
        self.text = text


#: With these a server answers in the name of an entity that is not there, and an entity
#: that is there answers what it does not support (RFC 6120 §8.3.3).
_NOT_THERE = frozenset(
    {
        "gone",
        "recipient-unavailable",
        "remote-server-not-found",
        "remote-server-timeout",
        "service-unavailable",
    }
)


def why_not_delivered(
    *,
    to: str,
    attempts: int,
    condition: str | None,
    by: str | None,
    text: str | None = None,
) -> str:
    """Why a message was not delivered, or is in doubt, and what to do about it.

    Args:
        to: the JID as the application gave it.
        attempts: iqs sent for it.
        condition: the latest stanza error, or None.
        by: the JID that this error came from, or None.
        text: what this error says for people, or None.
    """
    if condition is None:
        if attempts:
            return "no answer in time"
        if "/" in to:
            return f"nothing was sent: there was no session, or no time to ask {to}"
        return (
            f"no resource of {to} with QoS is known: is there a presence subscription, "
            "and is it online?"
        )
    said = f" ({text})" if text else ""
    if condition in _NOT_THERE:
        # A server answers from the JID of the entity that is not there.
        about = by or to
        return (
            f"{condition}, answered for {about}{said}: it is not online, or does not "
            "support QoS"
        )
    reason = f"{condition}, said {by}{said}" if by else f"{condition}{said}"
    if condition == "not-allowed":
        return (
            f"{reason}: the receiver does not trust this account: it can add the "
            "account to its roster, or name it in `trust` (--trust)"
        )
    if condition == "feature-not-implemented":
        return f"{reason}: it does not support QoS"
    return reason


class NotDelivered(DeliveryFailed):
    """The message was certainly not handed to the receiving application.

    Its attributes are those of DeliveryFailed.
    """

    _ended = "was not delivered"


class InDoubt(DeliveryFailed):
    """The message may have been handed over; nobody can tell any more.

    Its attributes are those of DeliveryFailed.
    """

    _ended = "is in doubt"


class CannotConnect(QosError):
    """There is no session with the server, and another attempt is of no use.

    The text names the server and says what happened: the login was refused, say, or
    the certificate, or there was no session within the time-out. Messages that were
    accepted stay in the store.
    """


class UsageError(QosError):
    """The command line, the environment, a config file or an option makes no sense."""


class StillOutstanding(QosError):
    """The plugin was closed before the message had ended, or before that was known.

    It was accepted, so do not send it again. Open the store anew to let it go on, and ask
    for its outcome then.

    Attributes:
        msg_id: its id.
    """

    def __init__(self, msg_id: str, *, durable: bool) -> None:
        """Say where it is now.

        Args:
            msg_id: its id.
            durable: whether its store outlives the process.
        """
        goes_on = "it is in the store, and goes on at the next start"
        gone = "its store was in memory, so what becomes of it is not known"
        super().__init__(
            f"the plugin was closed before {msg_id!r} had ended: "
            f"{goes_on if durable else gone}"
        )
        self.msg_id = msg_id


class RequestFailed(QosError):
    """A request to a service did not succeed.

    Attributes:
        to: the JID that was asked.
        what: what it was asked for, in a word.
    """

    def __init__(self, text: str, *, to: str, what: str) -> None:
        super().__init__(text)
        self.to = to
        self.what = what

    @property
    def unreachable(self) -> bool:
        """Whether the service has said no word: the same request may succeed, repeated."""
        return False

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed when it is repeated."""
        return self.unreachable


#: Who was asked is away, or cannot be reached; the request was not read.
_AWAY = frozenset(
    {
        "recipient-unavailable",
        "remote-server-not-found",
        "remote-server-timeout",
        "service-unavailable",
    }
)

#: What else is said of who is away, where the error does not name who says it:
#: ejabberd looks for a component that is away at other servers, and says that it may
#: not, if it may not. A service that is not ours may mean it; then a repeat only takes
#: time, and to believe it of one of ours would lose an item that it has accepted. Not
#: so `item-not-found` and the like: no server is known to say that in another's place,
#: and a service that is not ours says it of every item whose lock has ended.
_AWAY_OR_NOT = frozenset({"forbidden"})


class RequestRefused(RequestFailed):
    """The answer was a stanza error (RFC 6120 §8.3). Nothing was changed.

    Attributes:
        condition: such as `item-not-found`; `undefined-condition` if none was given.
        type: the error type; `wait` may succeed later.
        pubsub: the condition of XEP-0060 that stood beside, or ''.
        text: what it says for people, or ''.
        by: who refused, as the error names him: the service, or a server on the way
            to it (RFC 6120 §8.3.1); '' where it names nobody. A service of ours names
            itself.
    """

    def __init__(
        self,
        condition: str,
        *,
        to: str,
        what: str,
        type: str,  # noqa: A002 - as in RFC 6120
        pubsub: str = "",
        text: str = "",
        by: str = "",
    ) -> None:
        beside = f" ({pubsub})" if pubsub else ""
        said = f": {text}" if text else ""
        super().__init__(
            f"{by or to} refused to {what}: {condition}{beside}{said}",
            to=to,
            what=what,
        )
        self.condition = condition
        self.type = type
        self.pubsub = pubsub
        self.text = text
        self.by = by

    @property
    def unreachable(self) -> bool:
        """Whether the service has said no word: the same request may succeed, repeated.

        What a server says in its place is no decision about the request, whatever the
        condition: the service, when it was there, may even have done it.
        """
        if self.by == self.to:
            return self.condition in _AWAY
        return bool(self.by) or self.condition in _AWAY | _AWAY_OR_NOT

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed when it is repeated."""
        if self.unreachable:
            return True
        # queue.md §2
        return self.type == "wait" and self.condition != "unexpected-request"


class NoAnswer(RequestFailed):
    """No answer came in time, or the session was lost: it may have been done.

    Attributes:
        reason: which of these, in words.
    """

    def __init__(self, reason: str, *, to: str, what: str) -> None:
        super().__init__(
            f"{to} did not answer to {what}: {reason}; it may have been done",
            to=to,
            what=what,
        )
        self.reason = reason

    @property
    def unreachable(self) -> bool:
        """Whether the service has said no word: the same request may succeed, repeated."""
        return True


class JobLost(QosError):
    """An item is not this worker's any more: drop what was done for it.

    Attributes:
        item_id: the id of the item.
        reason: why it is lost, in words.
        condition: the stanza error that said so, or None (a deadline, say).
    """

    def __init__(
        self, item_id: str, reason: str, *, condition: str | None = None
    ) -> None:
        super().__init__(f"item {item_id!r} is lost: {reason}")
        self.item_id = item_id
        self.reason = reason
        self.condition = condition


class UnrecoverableError(QosError):
    """Raised by the handler of a worker: it cannot do this, or any other item.

    The worker unsubscribes and unlocks all that it has (XEP-0254 §4).
    """


class JournalError(QosError):
    """A journal cannot be begun.

    Attributes:
        path: the file or the folder.
    """

    def __init__(self, path: str, text: str) -> None:
        super().__init__(f"the journal cannot be written: {path}: {text}")
        self.path = path


class StoreError(QosError):
    """A store could not be opened, read or written.

    Attributes:
        url: the store, as it was named.
    """

    def __init__(self, url: str, text: str) -> None:
        super().__init__(f"{url}: {text}")
        self.url = url


class StoreInUse(StoreError):
    """Another process has the store open."""


class StoreTooNew(StoreError):
    """The store was written by a newer version of this library."""


class StoreDamaged(StoreError):
    """The store is broken, or is not one of ours. It was left as it is."""


class StoreReadOnly(StoreError):
    """The store cannot be written."""


class StoreFull(StoreError):
    """There is no space left for the store."""
