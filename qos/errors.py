"""Every error that a user of this library can meet.

::

    QosError
    ├── LocalProtocolError        the caller asked for something impossible
    │   ├── InvalidArgument       an argument has a wrong type or value; a ValueError
    │   ├── MessageTooLarge       over the server's stanza limit
    │   ├── OutboxFull            the outbox has reached its limit
    │   ├── UnknownMessage        no such message in the store
    │   ├── AmbiguousMessage      several senders have used this id
    │   └── CannotWithdraw        the message may have been handed over already
    ├── RemoteProtocolError       the peer broke the protocol; has the answer
    ├── DeliveryFailed            the message ended, and was not delivered
    │   ├── NotDelivered          certainly not delivered
    │   └── InDoubt               perhaps delivered
    ├── CannotConnect             no session with the server, and no use in trying again
    ├── StillOutstanding          the plugin was closed before the outcome was known
    ├── RequestFailed             a service did not do what was asked
    │   ├── RequestRefused        the service gave an error
    │   └── NoAnswer              no answer came: the service may have done it
    ├── JobLost                   the item does not belong to this worker any more
    ├── UnrecoverableError        raised by a worker's handler that cannot go on
    ├── UsageError                a wrong option of a command or of a Spark format
    ├── JournalError              the journal's folder; names the file
    └── StoreError                the disk; always names the store
        ├── StoreInUse            another process has it open
        ├── StoreTooNew           written by a newer version
        ├── StoreDamaged          broken, or not one of ours
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

#: Shortens a value in the text of an error, to a length that fits a JID or a path.
_shown = reprlib.Repr()
_shown.maxstring = _shown.maxother = 120

ErrorType = Literal["auth", "cancel", "continue", "modify", "wait"]


class QosError(Exception):
    """The base of all errors of this library."""


class LocalProtocolError(QosError):
    """The caller asked for something that cannot be done. Nothing was changed."""


class InvalidArgument(LocalProtocolError, ValueError):
    """An argument or option has a type or a value that is not allowed.

    Nothing was sent, stored or started. The one class covers wrong types and wrong
    values, so `except ValueError` is enough. The text shows the beginning and the end
    of a long value.

    Attributes:
        name: of the argument or option.
        value: as it was given; only its type if the value is private, such as a
            payload.
        expected: what is allowed, in words.
    """

    def __init__(
        self, name: str, value: object, expected: str, *, why: str = ""
    ) -> None:
        """Make the error and its text.

        Args:
            name: of the argument or option.
            value: as it was given.
            expected: what is allowed, in words that follow "must be".
            why: what is wrong with the value, if `expected` does not explain it.
        """
        reason = f" ({why})" if why else ""
        value_text = "" if value is str else f": {_shown.repr(value)}"
        super().__init__(f"{name} must be {expected}{value_text}{reason}")
        self.name = name
        self.value = value
        self.expected = expected


class MessageTooLarge(LocalProtocolError):
    """The message is larger than the server allows, and would end the whole stream.

    Attributes:
        to: the JID of the receiver.
        size: bytes of the stanza as it would be sent.
        limit: bytes that the server accepts.
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
    """The outbox has reached its limit; the message was not accepted.

    Attributes:
        unit: what the limit counts: messages or bytes.
        limit: the limit.
        account: the user of a gateway whose part of the outbox is full; '': all of it.
    """

    def __init__(
        self,
        *,
        unit: Literal["messages", "bytes"],
        limit: int,
        account: str = "",
        plain: bool = False,
    ) -> None:
        """Make the error and its text.

        Args:
            unit: see above, as limit and account.
            limit: the limit.
            account: the user.
            plain: the limit is that of messages at level unacknowledged.
        """
        place = f"part of {account} in the outbox" if account else "outbox"
        text = f"the {place} is full: its limit is {limit} {unit}"
        if plain:
            text = (
                f"{limit} messages at level unacknowledged wait for a session, and no "
                "more are kept"
            )
        super().__init__(text)
        self.unit = unit
        self.limit = limit
        self.account = account


class UnknownMessage(LocalProtocolError):
    """The store has no message with this id, or the message has ended.

    Attributes:
        msg_id: the id.
    """

    def __init__(self, msg_id: str) -> None:
        super().__init__(f"no message {msg_id!r} in the store")
        self.msg_id = msg_id


class AmbiguousMessage(LocalProtocolError):
    """Several messages have this id: an id is unique only together with its sender.

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
    """The message may have been handed over already, so it is not withdrawn.

    Attributes:
        msg_id: its id.
        state: its state: the value of a `qos.OutgoingState`.
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
        condition: the stanza error condition to answer with (RFC 6120 §8.3.3).
        type: the error type to answer with (RFC 6120 §8.3.2).
    """

    def __init__(self, text: str, *, condition: str, type: ErrorType) -> None:  # noqa: A002
        super().__init__(text)
        self.condition = condition
        self.type: ErrorType = type


class DeliveryFailed(QosError):
    """A message ended without a confirmed delivery.

    Attributes:
        msg_id: its id.
        to: the JID as the application gave it.
        level: the word for its level, as ``qos.Level(level)`` takes it.
        attempts: the number of iqs sent for it, repeats included.
        condition: the stanza error that decided; None for another cause, such as a
            deadline.
        by: the JID that sent this error, or None.
        text: the error's text for people, as one line, or None.
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


#: The errors with which a server answers for an entity that is not there. Entities that
#: are there use the same errors for a feature that they do not support (RFC 6120
#: §8.3.3).
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
    """The reason why a message was not delivered or is in doubt, with advice.

    Args:
        to: the JID as the application gave it.
        attempts: the number of iqs sent for it.
        condition: the latest stanza error, or None.
        by: the JID that this error came from, or None.
        text: the error's text for people, or None.
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
    detail = f" ({text})" if text else ""
    if condition in _NOT_THERE:
        # A server answers with the JID of the absent entity as the sender.
        about = by or to
        return (
            f"{condition}, answered for {about}{detail}: it is not online, or does not "
            "support QoS"
        )
    reason = f"{condition}, said {by}{detail}" if by else f"{condition}{detail}"
    if condition == "not-allowed":
        return (
            f"{reason}: the receiver does not trust this account: it can add the "
            "account to its roster, or name it in `trust` (--trust); or its operator has "
            "dropped this message"
        )
    if condition == "feature-not-implemented":
        return f"{reason}: it does not support QoS"
    return reason


class NotDelivered(DeliveryFailed):
    """The message was certainly not handed to the receiving application.

    It has the attributes of DeliveryFailed.
    """

    _ended = "was not delivered"


class InDoubt(DeliveryFailed):
    """The message may have been handed over; this can no longer be found out.

    It has the attributes of DeliveryFailed.
    """

    _ended = "is in doubt"


class CannotConnect(QosError):
    """No session with the server is possible, and another attempt is of no use.

    The text names the server and says what happened: for example, the login or the
    certificate was refused, or there was no session within the time-out. Messages that
    were accepted stay in the store.
    """


class UsageError(QosError):
    """A wrong option, argument, environment variable or config file."""


class StillOutstanding(QosError):
    """The plugin was closed before the message's end, or before its outcome was known.

    The message was accepted, so do not send it again. Open the store again: its
    delivery then continues, and the outcome can be asked for.

    Attributes:
        msg_id: its id.
    """

    def __init__(self, msg_id: str, *, durable: bool) -> None:
        """Make the error and its text, which says where the message is now.

        Args:
            msg_id: its id.
            durable: whether its store outlives the process.
        """
        in_store = "it is in the store, and goes on at the next start"
        in_memory = "its store was in memory, so what becomes of it is not known"
        super().__init__(
            f"the plugin was closed before {msg_id!r} had ended: "
            f"{in_store if durable else in_memory}"
        )
        self.msg_id = msg_id


class RequestFailed(QosError):
    """A request to a service did not succeed.

    Attributes:
        to: the JID of the service.
        what: the request, in one word.
    """

    to: str
    what: str

    @property
    def unreachable(self) -> bool:
        """Whether the service itself has not answered, so that a repeat may succeed."""
        return False

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed when it is repeated."""
        return self.unreachable


#: The conditions that mean an absent or unreachable service: it did not read the
#: request.
_AWAY = frozenset(
    {
        "recipient-unavailable",
        "remote-server-not-found",
        "remote-server-timeout",
        "service-unavailable",
    }
)

#: Further conditions that mean an absent service if the error does not name its sender.
#: ejabberd looks for an absent component on other servers, and answers `forbidden` if
#: it may not connect to them. A foreign service may mean `forbidden` literally; then a
#: repeat only costs time. To believe it of one of our services would lose an item that
#: the service has accepted. `item-not-found` and the like are not in this list: no
#: server is known to send them for somebody else, and a foreign service sends them for
#: every item whose lock has ended.
_AWAY_OR_NOT = frozenset({"forbidden"})


#: The meaning of a condition, for errors without a text.
_UNSAID = {"item-not-found": "there is none, or this account may not see it"}


class RequestRefused(RequestFailed):
    """The answer was a stanza error (RFC 6120 §8.3). Nothing was changed.

    Attributes:
        condition: such as `item-not-found`; `undefined-condition` if none was given.
        type: the error type; with `wait` the request may succeed later.
        pubsub: the additional condition of XEP-0060, or ''.
        text: the error's text for people, or ''.
        by: the JID that refused, as named by the error: the service, or a server on the
            way to it (RFC 6120 §8.3.1); '' if the error names none. Our services always
            name themselves.
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
        specific = f" ({pubsub})" if pubsub else ""
        explained = text or _UNSAID.get(condition, "")
        detail = f": {explained}" if explained else ""
        super().__init__(f"{by or to} refused to {what}: {condition}{specific}{detail}")
        self.to = to
        self.what = what
        self.condition = condition
        self.type = type
        self.pubsub = pubsub
        self.text = text
        self.by = by

    @property
    def unreachable(self) -> bool:
        """Whether the service itself has not answered, so that a repeat may succeed.

        An error from a server in between is no decision about the request, whatever its
        condition. The service, if it was there, may even have done what was asked.
        """
        if self.by == self.to:
            return self.condition in _AWAY
        return bool(self.by) or self.condition in _AWAY | _AWAY_OR_NOT

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may succeed when it is repeated."""
        if self.unreachable:
            return True
        # By XEP-0254 the lock is lost after `unexpected-request`: a repeat is refused
        # again.
        return self.type == "wait" and self.condition != "unexpected-request"


class NoAnswer(RequestFailed):
    """No answer came in time, or the session was lost: the request may have been done.

    Attributes:
        reason: which of the two, in words.
    """

    def __init__(self, reason: str, *, to: str, what: str) -> None:
        super().__init__(
            f"{to} did not answer to {what}: {reason}; it may have been done"
        )
        self.to = to
        self.what = what
        self.reason = reason

    @property
    def unreachable(self) -> bool:
        """Whether the service itself has not answered, so that a repeat may succeed."""
        return True


class JobLost(QosError):
    """An item does not belong to this worker any more: discard the work done for it.

    Attributes:
        item_id: the id of the item.
        reason: why it is lost, in words.
        condition: the stanza error that said so; None for another cause, such as a
            deadline.
    """

    def __init__(
        self, item_id: str, reason: str, *, condition: str | None = None
    ) -> None:
        super().__init__(f"item {item_id!r} is lost: {reason}")
        self.item_id = item_id
        self.reason = reason
        self.condition = condition


class UnrecoverableError(QosError):
    """Raised by a worker's handler that can handle neither this item nor any other.

    The worker unsubscribes and unlocks all its items (XEP-0254 §4).
    """


class JournalError(QosError):
    """A journal cannot be started.

    Attributes:
        path: the file or the folder.
    """

    def __init__(self, path: str, text: str) -> None:
        super().__init__(f"the journal cannot be written: {path}: {text}")
        self.path = path


class StoreError(QosError):
    """A store could not be opened, read or written.

    Attributes:
        url: the URL of the store, as it was given.
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
    """The disk has no space left for the store."""
