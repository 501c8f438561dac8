"""The contents of a run, all of it explicit: the same plan gives the same run.

A plan is made from a seed, and can be made smaller: without some of its faults or of
its work it is a valid plan too. So a failure can be shrunk (`shrinking`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from qos.core.message.model import Level
from qos.core.queue.terminus import ExpiryPolicy

__all__ = [
    "ALWAYS",
    "BOTH_SELECTORS",
    "FAILS_MAX",
    "FAULTS",
    "HANDOVERS_MAX",
    "LONG_S",
    "MACHINES",
    "PUSH_RELS",
    "RECEIVERS",
    "REDELIVERIES_MAX",
    "REQUEST_FAULTS",
    "SELECTORS",
    "SENDERS",
    "STANZA_FAULTS",
    "TEXT_SENDERS",
    "TIMED_FAULTS",
    "TROUBLE_S",
    "WORKERS",
    "YEAR_S",
    "Fault",
    "Plan",
    "PlannedItem",
    "PlannedMessage",
    "Settings",
    "jid_of",
]

#: Faults begin within this many seconds; then everything is repaired, and all must end.
TROUBLE_S = 15.0

#: Longer than anything takes: a deadline that comes if nothing else does.
LONG_S = 300.0

#: A clock that is set forward by more does not fit to what is in a store.
YEAR_S = 365 * 86_400.0

#: More than any number of attempts.
ALWAYS = 1_000_000_000

#: Failed deliveries after which an item is dead.
FAILS_MAX = 3

#: Hand-overs of a message to a consumer, after which it is parked.
HANDOVERS_MAX = 3

#: How often a message may come to a loop again: kills in the work on one are rare.
REDELIVERIES_MAX = 1

#: The numbers of our senders, of devices that know only the proto-XEP, of receivers,
#: workers, and all.
SENDERS = ("ann",)
TEXT_SENDERS = ("bob-1", "bob-2")
RECEIVERS = ("lamp", "bell")
WORKERS = ("bee", "wasp")
MACHINES = (
    *(*SENDERS, *TEXT_SENDERS, *RECEIVERS),
    *("queue", "shop", *WORKERS, "target", "puller"),
)

#: The description of each kind of fault. {at} is a time or a count.
FAULTS = {
    "lose": "the network loses stanza {at:.0f} of {target}",
    "duplicate": "the network delivers stanza {at:.0f} of {target} twice, the second "
    "time {seconds:.2f} s later",
    "delay": "the network holds stanza {at:.0f} of {target} up for {seconds:.2f} s, "
    "and all behind it",
    "late": "the network delivers stanza {at:.0f} of {target} {seconds:.2f} s late, "
    "whoever has reconnected meanwhile",
    "unsure": "the network delivers stanza {at:.0f} of {target}, and says that it "
    "may not have",
    "bounce": "the network delivers stanza {at:.0f} of {target} to a machine that then "
    "loses its connection, for {seconds:.2f} s, and returns it as not delivered",
    "cut": "at {at:.2f} s {target} loses its connection, for {seconds:.2f} s{how}",
    "partition": "at {at:.2f} s nothing goes from or to {target}, for {seconds:.2f} s",
    "kill": "at {at:.2f} s {target} is killed, for {seconds:.2f} s{how}",
    "die": "{target} is killed at its effect {at:.0f}, for {seconds:.2f} s{how}",
    "stop": "at {at:.2f} s {target} is stopped, for {seconds:.2f} s",
    "jump": "at {at:.2f} s the clock of {target} is set by {seconds:+.0f} s",
    "leave": "at {at:.2f} s {target} is asked to stop, and starts again",
    "wipe": "at {at:.2f} s {target} is killed, for {seconds:.2f} s, and has a new disk",
    "drop": "at {at:.2f} s {target} is killed, for {seconds:.2f} s, and an operator "
    "drops by force what it had in hand",
    "replay": "at {at:.2f} s the network delivers the last {seconds:.0f} stanzas of "
    "{target} again",
    "slow": "the disk of {target} takes {seconds:.2f} s for commit {at:.0f}",
    "full": "the disk of {target} is full at commit {at:.0f}, for {seconds:.0f} commits",
    "error": "the disk of {target} fails with EIO at commit {at:.0f}, for "
    "{seconds:.0f} commits",
    "unheard": "the connection breaks before request {at:.0f} comes, at {target}",
    "unanswered": "the connection breaks in place of the answer to request {at:.0f}, "
    "at {target}",
    "hang": "nothing is done for {seconds:.2f} s about request {at:.0f}, at {target}",
    "status": "{target} answers request {at:.0f} with {seconds:.0f}",
}


#: Faults that concern a stanza, or a request by HTTP, and faults with a time.
STANZA_FAULTS = frozenset({"lose", "duplicate", "delay", "late", "unsure", "bounce"})
REQUEST_FAULTS = frozenset({"unheard", "unanswered", "hang", "status"})
TIMED_FAULTS = frozenset(
    {"cut", "partition", "kill", "stop", "jump", "wipe", "leave", "replay", "drop"}
)


#: What selectors want, by the color of an item and its delivery count.
SELECTORS: dict[str, Callable[[str, int], bool]] = {
    "": lambda _color, _count: True,
    "color = 'red'": lambda color, _count: color == "red",
    "color = 'red' OR color IS NULL": lambda color, _count: color != "blue",
    # Not those without a color: unknown is not TRUE.
    "NOT color = 'red'": lambda color, _count: color == "blue",
    "JMSRedelivered": lambda _color, count: count > 0,
    "NOT JMSRedelivered": lambda _color, count: count == 0,
}

#: The selectors of both workers: each item is wanted by one of them at any time.
BOTH_SELECTORS = (
    ("color = 'red' OR color IS NULL", "NOT color = 'red'"),
    ("NOT color = 'red'", "color = 'red' OR color IS NULL"),
    ("NOT JMSRedelivered", "JMSRedelivered"),
    ("JMSRedelivered", "NOT JMSRedelivered"),
    ("", "color = 'red'"),
)


#: How messages are forwarded to push subscribers.
PUSH_RELS = (
    *("post-message-once",) * 4,
    "destination",
    "template",
    "post-message",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        kind: one of FAULTS.
        target: one of MACHINES.
        at: seconds after the start, or the number of the stanza, request, effect or
            commit.
        seconds: how long, or by how much; for a disk, how many commits; a status.
        how: `resource`: it comes back under another resource.
    """

    kind: str
    target: str
    at: float
    seconds: float = 0.0
    how: str = ""

    def __str__(self) -> str:
        how = ", and comes back under another resource" if self.how else ""
        return FAULTS[self.kind].format(
            target=self.target, at=self.at, seconds=self.seconds, how=how
        )


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """A message that an application is to send.

    Attributes:
        number: identifies it.
        at: when, seconds after the start.
        sender: the machine.
        to: a JID, full or bare.
        level: of the message; unacknowledged is a plain message.
        ordered: as for Outbox.submit.
        deadline_s: likewise.
        withdrawn_s: it is withdrawn this long after its acceptance; None: it is not.
        taking_s: how long the receiving application takes for it.
        fails: how many times a consumer fails on it.
        posted: by a client of a gateway, which posts it again until it has an answer.
        padding: it has so many bytes more, and is over the limit of its server.
    """

    number: int
    at: float
    sender: str
    to: str
    level: Level
    ordered: bool = False
    deadline_s: float | None = None
    withdrawn_s: float | None = None
    taking_s: float = 0.0
    fails: int = 0
    posted: bool = False
    padding: int = 0

    def __str__(self) -> str:
        words = [f"at {self.at:.2f} s {self.sender} sends {self.number} to {self.to}"]
        words.append(self.level.value)
        words += ["ordered"] * self.ordered
        words += ["posted"] * self.posted
        words += [f"{self.padding} bytes larger"] * bool(self.padding)
        if self.deadline_s is not None:
            words.append(f"deadline {self.deadline_s:.2f} s")
        if self.withdrawn_s is not None:
            words.append(f"withdrawn {self.withdrawn_s:.2f} s later")
        if self.taking_s:
            words.append(f"taken in {self.taking_s:.2f} s")
        if self.fails:
            words.append(f"its consumer fails {self.fails} times")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class PlannedItem:
    """An item that is to be put into the queue.

    Attributes:
        item_id: identifies it.
        at: when, seconds after the start.
        works_s: how long a worker works on it.
        fails: how many times a worker fails on it.
        color: a property of it, for selectors; '': it has none.
    """

    item_id: str
    at: float
    works_s: float = 0.0
    fails: int = 0
    color: str = ""

    def __str__(self) -> str:
        times = "always" if self.fails == ALWAYS else f"{self.fails} times"
        fails = f", fails {times}" if self.fails else ""
        return (
            f"at {self.at:.2f} s {self.color} {self.item_id} is published, takes "
            f"{self.works_s:.2f} s{fails}"
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the machines.

    Attributes:
        quota: messages that a receiver holds for one account.
        window: messages in flight to one account.
        hold_ttl_s: how long a receiver holds a message.
        lock_s: how long a lock of an item lasts.
        durable_locks: of the workers.
        resumable_locks: of the workers, which are clients of XMPP then.
        shared: both receivers are devices of one account, and so are both workers.
        consumes: the receivers have a consumer, with effects.
        handler_after_s: the application of a receiver registers a handler this long
            after its start; None: at once.
        sends_only: of the two devices of one account (see `shared`) the second, `bell`,
            accepts no messages.
        distrusted: the senders of an account that no receiver trusts.
        contacts: the receivers trust their contacts; otherwise those of a list.
        domain: that list names a domain, and the distrusted senders are of another one.
        accepts_anyone: plain and acknowledged messages of everybody are accepted.
        roster_s: how long after the beginning of a session the roster is known.
        strangers: there are an owner of private queues, and a stranger.
        selectors: of the workers, in their order; see SELECTORS.
        expiry: the expiry policy of the terminus of a worker behind a gateway; None: it
            is a client of XMPP.
        terminus_s: the timeout of that terminus.
        durable_terminus: it outlives the process of the service.
        default_released: what it has when it ends is released, by its default outcome.
        push: the selectors of the push subscribers, one each.
        push_rel: how messages are forwarded to them.
        push_sessions: how many messages are on their way to each of them at a time.
        push_retries: how often a message is sent again within one delivery.
        push_retry_wait_s: seconds before each of these.
        no_workers: there are no workers, for all is pushed or pulled.
        link_s: how long the target knows a one-off link that was not used.
        pulled: there is a client of HornetQ's dialect.
        pull_selector: of that.
        stanza_bytes_max: a server ends the stream at a larger stanza; 0: it takes any.
    """

    quota: int = 20
    window: int = 8
    hold_ttl_s: float = 30.0
    lock_s: float = 10.0
    durable_locks: bool = False
    resumable_locks: bool = False
    shared: bool = False
    consumes: bool = False
    handler_after_s: float | None = None
    sends_only: bool = False
    distrusted: tuple[str, ...] = ()
    contacts: bool = False
    domain: bool = False
    accepts_anyone: bool = False
    roster_s: float = 0.0
    strangers: bool = False
    selectors: tuple[str, str] = ("", "")
    expiry: ExpiryPolicy | None = None
    terminus_s: int = 0
    durable_terminus: bool = False
    default_released: bool = False
    push: tuple[str, ...] = ()
    push_rel: str = "post-message-once"
    push_sessions: int = 1
    push_retries: int = 0
    push_retry_wait_s: float = 0.0
    no_workers: bool = False
    link_s: float = 3600.0
    pulled: bool = False
    pull_selector: str = ""
    stanza_bytes_max: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A run.

    Attributes:
        seed: decides everything else: latencies, jitter.
        settings: of the machines.
        faults: the faults.
        messages: to be sent.
        items: to be published.
    """

    seed: int
    settings: Settings = Settings()
    faults: tuple[Fault, ...] = ()
    messages: tuple[PlannedMessage, ...] = ()
    items: tuple[PlannedItem, ...] = ()


def jid_of(name: str, settings: Settings) -> str:
    """The full JID of a machine, unless it has a reason for another."""
    jid = {
        "bob-1": "bob@x/1",
        "bob-2": "bob@x/2",
        "bell": "lamp@x/2" if settings.shared else "bell@x/1",
        "wasp": "bee@x/2" if settings.shared else "wasp@x/1",
    }.get(name, f"{name}@x/1")
    if settings.domain and name in settings.distrusted:
        return jid.replace("@x/", "@y/")
    return jid
