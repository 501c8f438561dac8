"""The invariants of every step: one function each, whose docstring is the rule.

Each looks at the known facts, and returns None, or the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from qos.core.message.model import Level, OutgoingState
from qos.core.queue.access import is_owner, may_publish
from qos.core.queue.effects import SaveEnded, SaveItem
from qos.core.queue.node_options import node_options
from qos.core.queue.publishing import ONCE_S_MAX
from qos.core.queue.terminus import ExpiryPolicy
from qos.core.strings import bare
from simulation.plan import (
    FAILS_MAX,
    HANDOVERS_MAX,
    RECEIVERS,
    REDELIVERIES_MAX,
    SELECTORS,
    SENDERS,
)

if TYPE_CHECKING:
    from qos.core.queue.effects import Change as QueueChange
    from qos.core.queue.item import EndedItem, Item, Node
    from qos.core.queue.properties import Properties
    from qos.core.queue.terminus import Terminus
    from simulation.items import ItemFacts
    from simulation.ledger import Ledger, MessageFacts
    from simulation.queue_disk import QueueDisk

__all__ = ["Violation"]

#: The owner of the private queues.
_BOSS = "boss@x"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken invariant.

    Attributes:
        invariant: the name of the function.
        sentence: its rule.
        detail: what differs.
    """

    invariant: str
    sentence: str
    detail: str

    @classmethod
    def of(cls, invariant: Callable[..., str | None], detail: str) -> Self:
        """A violation of one of the functions here."""
        sentence = (invariant.__doc__ or "").partition("\n")[0]
        return cls(invariant.__name__, sentence, detail)

    def __str__(self) -> str:
        return f"{self.detail} ({self.sentence})"


# -- messages --------------------------------------------------------------


def once_without_the_mark(facts: MessageFacts, ledger: Ledger) -> str | None:
    """No assured message is handed over twice without the redelivered mark.

    The exception: a network that delivers a `deliver` to a receiver, and again after
    that has lost its store, makes the sender believe that the message was never handed
    over.
    """
    if ledger.wiped and facts.planned.sender in ledger.repeated:
        return None
    if facts.planned.level is not Level.ASSURED or facts.handed[-1].redelivered:
        return None
    if len(facts.handed) > 1:
        return f"{facts} is handed over again: {_hand_overs(facts)}"
    return None


def not_while_it_is_in_hand(facts: MessageFacts, in_hand: bool) -> str | None:
    """A repeat at level acknowledged is not handed over beside the message itself."""
    return f"{facts} is handed over while it is in hand" if in_hand else None


def not_after_it_came_again(facts: MessageFacts, ledger: Ledger) -> str | None:
    """A message that was taken after it had come again is not handed over as a new one.

    At level assured nothing is; see `once_without_the_mark`.
    """
    last = facts.handed[-1]
    if last.redelivered or ledger.wiped or last.machine not in facts.taken_again:
        return None
    return f"{facts} is handed over again: {_hand_overs(facts)}"


def not_again_at_once(number: str, early_s: float) -> str | None:
    """A request is repeated after the first delay at the soonest, unless the connection
    or the peer has come back.

    At level acknowledged the receiver hands over each, once the first has ended.
    """
    # Sums of floats are not exact.
    if early_s < 1e-6:
        return None
    return f"message {number} is requested again {early_s:.3f} s too soon"


def again_only_after_a_restart(facts: MessageFacts) -> str | None:
    """The mark is on messages that a former process had begun to hand over, and on no
    others.
    """
    last = facts.handed[-1]
    own = [each for each in facts.handed[:-1] if each.machine == last.machine]
    decided = facts.consumed or facts.rejected or facts.parked
    if not last.redelivered or (decided and own):
        # It is also on messages on which a consumer has failed, on those that an
        # operator has released, and on rejected ones if the rejection could not be
        # written.
        return None
    assured = facts.planned.level is Level.ASSURED
    again = any(each.process == last.process for each in own)
    if not last.begun or (assured and again):
        return f"{facts} is handed over again: {_hand_overs(facts)}"
    return None


def consumed_once(facts: MessageFacts) -> str | None:
    """The effect of a consumer is there once."""
    return f"{facts} has its effect {facts.taken} times" if facts.taken > 1 else None


def one_of_a_lane(account: str, at_work: int) -> str | None:
    """A consumer has only one message of an account at a time."""
    return f"it has {at_work} of {account}" if at_work > 1 else None


def parked_in_time(facts: MessageFacts) -> str | None:
    """A message is parked after as many hand-overs as its consumer allows."""
    if facts.handovers <= HANDOVERS_MAX:
        return None
    return f"{facts} is handed over {facts.handovers} times"


def parked_by_a_loop(facts: MessageFacts, times: int) -> str | None:
    """A message is parked after it has come to a loop again as often as it may."""
    return f"{facts} comes again {times} times" if times > REDELIVERIES_MAX else None


def undone_if_it_fails(facts: MessageFacts) -> str | None:
    """A hand-over that fails has no effect."""
    return f"there is an effect of {facts}, on which its consumer has failed"


def a_hold_is_of_one(
    hold: str, before: tuple[str, ...], message: tuple[str, ...]
) -> str | None:
    """A hold belongs to a single held message."""
    return f"{hold} is of {before}, and of {message}" if before != message else None


def held_for_its_time(ledger: Ledger, held_s: float) -> str | None:
    """A message is held for its whole time, whatever the clock says at a start.

    The exception: a clock was set forward by a time that may have passed. The time counts
    from the decision, and not from the write.
    """
    if not ledger.aged.isdisjoint(RECEIVERS) or held_s >= ledger.hold_ttl_s / 2:
        return None
    return f"a message is held for {held_s:.1f} s, and not {ledger.hold_ttl_s} s"


def only_what_is_released(facts: MessageFacts, released: bool) -> str | None:
    """A held message is handed over only after a `deliver` that names its hold."""
    if released or not facts.msg_id:
        return None
    return f"{facts} is handed over, and no deliver has named {facts.handed[-1].hold}"


def only_what_was_sent(payload: str) -> str | None:
    """Only messages that a sender has sent are handed over."""
    return f"{payload!r} is handed over, and nobody has sent it"


def in_order(facts: MessageFacts, messages: list[MessageFacts]) -> str | None:
    """An ordered message is handed over when all before it have ended or been handed
    over.
    """
    if not facts.planned.ordered:
        return None
    for before in messages:
        if (
            before.flow == facts.flow
            and before.accepted
            and facts.accepted
            and before.order < facts.order
            and before.told is None
            and not before.handed
        ):
            return f"{facts} is handed over before {before}"
    return None


def nothing_of_what_was_refused(facts: MessageFacts) -> str | None:
    """A message that was not accepted is not sent.

    If the disk may have it after all, this holds only at once.
    """
    if facts.handed and (facts.accepted is False or facts.unsure):
        return f"{facts} was not accepted, and is handed over"
    return None


def nothing_of_a_stranger(facts: MessageFacts, ledger: Ledger) -> str | None:
    """Whoever is not trusted reaches no application, at no level.

    Unless everybody is accepted at this level.
    """
    if not _is_of_a_stranger(facts, ledger):
        return None
    return f"{facts} is handed over, though its sender is not trusted"


def nothing_kept_for_a_stranger(facts: MessageFacts, ledger: Ledger) -> str | None:
    """Nothing is written for whoever is not trusted."""
    if not _is_of_a_stranger(facts, ledger):
        return None
    return f"{facts} is written, though its sender is not trusted"


def plain_of_the_trusted_is_taken(facts: MessageFacts, ledger: Ledger) -> str | None:
    """A plain message of a sender who is trusted, or for all, reaches the application."""
    if _is_of_a_stranger(facts, ledger):
        return None
    return f"{facts} is plain, its sender is trusted, and it is dropped"


def dropped_for_good(facts: MessageFacts, ledger: Ledger) -> str | None:
    """A message that an operator has dropped by force does not come again there.

    A receiver with a new disk knows nothing of that.
    """
    machine = facts.handed[-1].machine
    if machine not in facts.dropped or ledger.wiped:
        return None
    return f"{facts} was dropped by force, and comes again: {_hand_overs(facts)}"


def accepted_once(facts: MessageFacts) -> str | None:
    """A message that was accepted is not accepted again, however often it is posted."""
    return f"{facts} is accepted again" if facts.accepted else None


def never_what_is_not_delivered(facts: MessageFacts, ledger: Ledger) -> str | None:
    """A message reported as not delivered was never handed over, and never will be.

    The exception: at level acknowledged a network that delivers a stanza twice can have
    it refused once and taken the other time, since the two requests are independent.
    """
    if _refused_once(facts, ledger) or _refused_after_eio(facts, ledger):
        return None
    if facts.planned.level is Level.ASSURED and len(facts.handed) == facts.rejected:
        return None  # the application that got it has rejected it
    if facts.told is OutgoingState.NOT_DELIVERED and facts.handed:
        return f"{facts} is not delivered, and was handed over: {_hand_overs(facts)}"
    return None


def not_delivered_has_a_cause(facts: MessageFacts, ledger: Ledger) -> str | None:
    """A message is not delivered only if its deadline has come or it was withdrawn.

    Or if the application has rejected it, an operator has dropped it by force, its
    sender is not trusted, or it is too large.
    """
    if (
        facts.told is not OutgoingState.NOT_DELIVERED
        or facts.taken_back
        or facts.rejected
        or facts.dropped
        or facts.planned.padding
        or facts.planned.sender in ledger.distrusted
        or _deadline_may_have_come(facts, ledger)
    ):
        return None
    return f"{facts} is not delivered, and there is no reason for that"


def a_suspect_goes_alone(facts: MessageFacts, others: int) -> str | None:
    """What may have ended a stream is sent again when all others have been answered."""
    return f"{facts} is sent, and {others} have no answer" if others else None


def few_streams_end(name: str, ends: int, most: int) -> str | None:
    """A stanza over the limit of the server ends two streams, and no more.

    A process that is killed at an end may not know of it afterwards.
    """
    return f"{ends} streams of {name} have ended" if ends > most else None


def withdrawn_is_not_delivered(facts: MessageFacts, ledger: Ledger) -> str | None:
    """A withdrawn message has no other outcome, and no application has it.

    An application that got it has rejected it, which may come before the withdrawal.
    """
    if (
        not facts.withdrawn
        or _refused_once(facts, ledger)
        or _refused_after_eio(facts, ledger)
    ):
        return None
    if len(facts.handed) > facts.rejected:
        return f"{facts} is withdrawn, and was handed over: {_hand_overs(facts)}"
    if facts.told not in {None, OutgoingState.NOT_DELIVERED}:
        return f"{facts} is withdrawn, and {facts.told.value}"
    return None


def delivered_was_taken(facts: MessageFacts, ledger: Ledger) -> str | None:
    """The receiving application has each message that is reported as delivered.

    If the sender knows only the proto-XEP, it is handling the message at level
    acknowledged, and an unknown `deliver` is acknowledged.
    """
    ours = facts.planned.sender in SENDERS
    acknowledged = facts.planned.level is Level.ACKNOWLEDGED
    if ledger.wiped and not ours and not acknowledged:
        return None
    has_it = facts.taken if ours or not acknowledged else facts.handed
    if facts.told is OutgoingState.DELIVERED and not has_it:
        return f"{facts} is delivered, and nobody has it"
    return None


def one_outcome(facts: MessageFacts, before: OutgoingState) -> str | None:
    """The outcome of a message never changes."""
    told = facts.told.value if facts.told is not None else "nothing"
    return f"{facts} was {before.value}, and is now {told}"


def an_outcome_is_kept(facts: MessageFacts) -> str | None:
    """The outcome of an accepted message can be asked for after a restart."""
    return f"{facts} was accepted, and there is no outcome"


def doubt_has_a_cause(facts: MessageFacts, ledger: Ledger) -> str | None:
    """Kills and a bad network alone leave no doubt.

    Everything written is still there.
    """
    planned = facts.planned
    if (
        facts.told is not OutgoingState.IN_DOUBT
        or planned.level is Level.ACKNOWLEDGED
        or _deadline_may_have_come(facts, ledger)
        or ledger.wiped
        or planned.sender in ledger.moved
        or facts.msg_id in ledger.expired
        or facts.rejected  # and it may have been accepted before
        or facts.dropped
    ):
        return None
    return f"{facts} is in doubt"


def quotas_hold(name: str, used: int, room: int) -> str | None:
    """No more messages are held than the quotas allow."""
    return f"{name} holds {used} messages, over {room}" if used > room else None


# -- items -----------------------------------------------------------------


def stored_once(facts: ItemFacts) -> str | None:
    """An item that is published again is the same item."""
    return f"{facts} is there a second time" if facts.stored > 1 else None


def one_post_is_the_first(facts: ItemFacts) -> str | None:
    """Of all posts of an item, one is told to be the first."""
    return f"{facts} was posted first twice" if facts.first_posts > 1 else None


def one_end_is_the_first(facts: ItemFacts, count: int) -> str | None:
    """Of all settlements with a token, one is told to be the first."""
    return f"{facts} was settled first twice" if count > 1 else None


def an_old_link_makes_nothing(
    facts: ItemFacts, issued_at: float | None, asked_at: float
) -> str | None:
    """A one-off link makes no item when a use of it may have been forgotten."""
    if issued_at is None or asked_at - issued_at < ONCE_S_MAX:
        return None
    return f"{facts} came by a link of {asked_at - issued_at:.0f} s ago"


def published_is_stored(facts: ItemFacts) -> str | None:
    """An item that a publisher was told is published is on disk."""
    return None if facts.stored else f"{facts} is published, and is not there"


def told_what_is_on_disk(told: Item, kept: Item | None) -> str | None:
    """A worker is told only of locks that are on disk."""
    if kept is not None and (kept.token, kept.holder) == (told.token, told.holder):
        return None
    return f"{told.item_id} was given to {told.holder}, and the disk does not know"


def one_holder(facts: ItemFacts, to: str, now: float) -> str | None:
    """An item has one holder at a time."""
    lock = facts.lock
    if lock is None or lock.may_end or facts.deadlines.get(lock.token, now) <= now:
        return None
    return f"{facts} is given to {to}, and {lock.holder} has it"


def properties_are_kept(facts: ItemFacts, properties: Properties) -> str | None:
    """A worker gets the properties that the publisher has given."""
    color = facts.planned.color
    if properties == ({"color": color} if color else {}):
        return None
    return f"{facts} has the properties {properties}"


def given_what_is_wanted(facts: ItemFacts, selector: str, count: int) -> str | None:
    """A worker gets only the items that its selector wants."""
    color = facts.planned.color
    if SELECTORS[selector](color, count):
        return None
    return (
        f"{facts} ({color!r}, failed {count} times) went to one that wants {selector}"
    )


def no_more_than_wanted(to: str, held: int, wanted: int) -> str | None:
    """A worker has no more items than it has asked for."""
    return f"{to} has {held} items, and asked for {wanted}" if held > wanted else None


def lives_as_long_as_its_link(link: bool) -> str | None:
    """A node that a link has made is not deleted before the link."""
    return "a node is deleted, and the link that has made it is there" if link else None


def ends_in_time(jid: str, here: bool) -> str | None:
    """A terminus whose time is over is gone, with its subscription."""
    return f"the terminus of {jid} outlives its time" if here else None


def outlives_the_process(
    terminus: Terminus | None, started_at: float, now: float
) -> str | None:
    """A durable terminus whose time is not over is there after a start of the service."""
    if terminus is None:
        return None
    until = terminus.until
    if until is None and terminus.policy is not ExpiryPolicy.NEVER:
        until = started_at + terminus.timeout_s
    if until is not None and until <= now:
        return None
    return f"the terminus of {terminus.jid} ends with the process of the service"


def within_credit(to: str, sent: int, limit: int) -> str | None:
    """A worker behind a gateway gets no more items than it has credit for."""
    return f"{to} got {sent} items, with a credit of {limit}" if sent > limit else None


def settled_by_its_token(
    item_id: str, token: str, ended: EndedItem | None
) -> str | None:
    """A worker that is told that its delivery was accepted has ended the item by it."""
    if ended is not None and ended.token == token:
        return None
    return f"{item_id} is said to be accepted with {token}, and was not"


def taken_over_with_a_token(facts: ItemFacts, to: str) -> str | None:
    """A worker that takes a lock over gets a token of its own."""
    lock = facts.lock
    if lock is None or lock.holder == to:
        return None
    return f"{facts} goes from {lock.holder} to {to} under one token"


def resumed_by_its_token(facts: ItemFacts, to: str, asked: bool) -> str | None:
    """A lock goes to another full JID only if a worker has asked there, with its token."""
    return None if asked else f"the lock of {facts} goes to {to}, which has not asked"


def resumed_before_it_is_told(facts: ItemFacts, to: str, moved: bool) -> str | None:
    """A worker that takes a lock up again has it when it is told so."""
    return None if moved else f"{to} has taken up {facts}, and another one has it"


def ends_with_its_worker(facts: ItemFacts, over: bool) -> str | None:
    """A new worker does not get the delivery of another one that had its full JID."""
    return f"{facts} goes on, and its worker has died" if over else None


def new_once(name: str, times: int) -> str | None:
    """A process says once that it is a new worker: later it has items."""
    return f"{name} says {times} times that it is new" if times > 1 else None


def effect_once(facts: ItemFacts) -> str | None:
    """The effect of an item happens once, and only if the item was accepted."""
    if facts.done > 1:
        return f"the effect of {facts} is there {facts.done} times"
    if facts.done and facts.ended != "accepted":
        return f"the effect of {facts} is there, and it was not accepted"
    return None


def only_failures_are_counted(facts: ItemFacts, count: int, failed: bool) -> str | None:
    """A delivery is counted as failed only if its worker said so, left, or took too
    long.
    """
    if count <= facts.count + failed:
        return None
    return f"{facts} counts {count} failed deliveries after {facts.count}, for nothing"


def a_lock_lasts_while_nothing_is_heard(
    facts: ItemFacts, too_early_s: float
) -> str | None:
    """Time in which the service could answer nothing is not that of its workers."""
    if not too_early_s:
        return None
    return f"the lock of {facts} times out {too_early_s:.2f} s too early"


def each_failure_is_counted(facts: ItemFacts, count: int, returned: bool) -> str | None:
    """A delivery that neither its worker nor a server has given back has failed."""
    if count > facts.count or returned:
        return None
    return f"{facts} is available again, and still counts {count} failed deliveries"


def failures_are_counted(facts: ItemFacts, count: int) -> str | None:
    """A delivery has the number of earlier failed ones."""
    if count >= len(facts.counted):
        return None
    return f"{facts} has failed {len(facts.counted)} times, and {count} are counted"


def dead_in_time(facts: ItemFacts, count: int) -> str | None:
    """An item is dead after as many failed deliveries as the node allows.

    Or when a target has refused it.
    """
    if count == FAILS_MAX or facts.refused:
        return None
    return f"{facts} is dead after {count} failed deliveries"


def nothing_of_strangers(item: Item, node: Node | None) -> str | None:
    """An item comes into a private node only if its publisher may publish there."""
    if node is None or is_owner(node, item.publisher):
        return None
    if may_publish(node, node_options(node.config), item.publisher):
        return None
    return f"{item.item_id} of {item.publisher} is in {node.name!r}"


def nothing_for_strangers(item: Item, node: Node | None) -> str | None:
    """The items of a private node never come into a node of somebody else."""
    if node is None or item.publisher != _BOSS or is_owner(node, _BOSS):
        return None
    return f"{item.item_id} of {item.publisher} is in {node.name!r}, which is not his"


def a_link_is_kept_before_it_is_used(
    facts: ItemFacts, url: str, kept: set[str]
) -> str | None:
    """A one-off link is on disk before a message is posted to it."""
    return None if url in kept else f"{facts} is posted to {url}, which is not kept"


def arrives_once(facts: ItemFacts, subscriber_id: str) -> str | None:
    """The target of a push subscriber gets each message once at most."""
    count = facts.arrived[subscriber_id]
    return f"{facts} is there {count} times" if count > 1 else None


def nobody_else_gets_what_is_posted(
    facts: ItemFacts, to: str, ledger: Ledger
) -> str | None:
    """While a message is on its way to a target, nobody else gets it.

    The exception: the clock of the service was set.
    """
    if facts.posted_by in {"", to} or "queue" in ledger.jumped:
        return None
    if facts.posted_until <= ledger.now():
        return None
    return f"{facts} is given to {to}, and {facts.posted_by} has posted it"


def accepted_is_at_the_target(facts: ItemFacts, holder: str) -> str | None:
    """A message that was accepted for a push subscriber is at its target."""
    account, _, resource = holder.partition("/http-push-")
    if not resource or facts.arrived[resource]:
        return None
    return f"{facts} is accepted for {resource} of {account}, and is not there"


def accepted_was_handled(facts: ItemFacts, holder: str) -> str | None:
    """A message that was accepted for a client of HornetQ was handled by it."""
    if not holder.startswith("kim@x/") or facts.pulled:
        return None
    return f"{facts} is accepted for {holder}, which has not handled it"


def nothing_is_there(still: list[Item], selector: str) -> str | None:
    """A client is told that there is nothing for it only if that is so.

    Nothing that it wants was there, without a change, from its request to the answer.
    """
    for item in still:
        color = str(item.properties.get("color", ""))
        if SELECTORS[selector](color, item.delivery_count):
            return (
                f"nothing is there for {selector!r}, it is told; and {item.item_id} is"
            )
    return None


def what_is_written_is_shown(change: QueueChange, disk: QueueDisk) -> str | None:
    """What a service writes of an item is not of a purge or of a deleted node.

    It would be lost at the next start, though it is on disk.
    """
    match change:
        case SaveItem(item) if not disk.is_shown(item):
            return f"{item.item_id} of {item.node!r} is written, and nobody sees it"
        case SaveEnded(end) if end not in disk.written_ends():
            return f"the end of {end.item_id} in {end.node!r} is written, and not known"
    return None


def what_comes_again_says_so(facts: ItemFacts, to: str, count: int) -> str | None:
    """An item that somebody may have handled has a count, unless he gave it back.

    The count is the only sign of it that a consumer by AMQP or HTTP gets. The durable lock
    of an account has not ended if another of its workers takes it over.
    """
    before = facts.lock
    given_back = {*facts.returned, facts.default} - facts.lost
    if before is None or count or before.token in given_back:
        return None
    if before.durable and bare(before.holder) == bare(to):
        return None
    return f"{facts} was given to {before.holder}, and comes again as if it was new"


def given_outlives_the_service(given: tuple[str, str], subscribed: bool) -> str | None:
    """A client of HornetQ gets a message when its lock needs no subscription any more.

    A subscription that is there at a restart has left, with all that it holds.
    """
    return f"{given} is given, and is still subscribed" if subscribed else None


def an_old_link_gives_the_same(
    before: tuple[str, str], now: tuple[str, str], live: bool
) -> str | None:
    """A link that has given a message gives the same one, and no other."""
    if not live or before == now:
        return None
    return f"one link gives {before}, and then {now}"


def what_is_there_has_not_failed(
    facts: ItemFacts, token: str, failed: bool
) -> str | None:
    """A delivery has not failed if the target has said that it has the message."""
    if not failed or facts.there_by != token:
        return None
    return f"{facts} is at its target, and {token} has failed"


def copied_once_with_the_item(item_id: str, count: int) -> str | None:
    """The commit of a topic's item has one copy for each queue that subscribes."""
    return None if count == 1 else f"there are {count} copies of {item_id}"


def counts_are_a_recount(
    node: str, counts: Mapping[str, object], recount: Mapping[str, object]
) -> str | None:
    """The counts of a node are those of a look at all of its items."""
    wrong = {
        name: (counts[name], value)
        for name, value in recount.items()
        if counts[name] != value
    }
    return f"{node} counts, and has: {wrong}" if wrong else None


def nobody_takes_the_room_of_others(account: str, condition: str) -> str | None:
    """An account below its limit of nodes finds room for more, whatever others create."""
    if account != _BOSS or condition != "resource-constraint":
        return None
    return f"{account} finds no room for a node"


# -- all -------------------------------------------------------------------


def nothing_is_raised(error: BaseException) -> str | None:
    """No stanza, disk or kill makes a step raise an error."""
    return f"{type(error).__name__}: {error}"


def everything_ends(left: list[str]) -> str | None:
    """When everything is repaired, every message and item ends, and nothing stays
    reserved.
    """
    return "; ".join(left) or "it goes in circles"


def _deadline_may_have_come(facts: MessageFacts, ledger: Ledger) -> bool:
    deadline_s, sender = facts.planned.deadline_s, facts.planned.sender
    if deadline_s is None:
        return False
    return facts.told_at - facts.at >= deadline_s or sender in ledger.aged


def _is_of_a_stranger(facts: MessageFacts, ledger: Ledger) -> bool:
    """Whether its sender is not trusted, and its level is not open to everybody."""
    planned = facts.planned
    return planned.sender in ledger.distrusted and (
        planned.level not in ledger.open_levels
    )


def _refused_once(facts: MessageFacts, ledger: Ledger) -> bool:
    return facts.turned_away and facts.planned.sender in ledger.repeated


def _refused_after_eio(facts: MessageFacts, ledger: Ledger) -> bool:
    """An acknowledged message was refused for an I/O error, but its receiver has it.

    The sender could be told that the disk may have it; until then this is an exception.
    """
    return (
        facts.turned_away
        and bool(facts.handed)
        and all(
            each.begun and each.machine in ledger.io_errors for each in facts.handed
        )
    )


def _hand_overs(facts: MessageFacts) -> str:
    return ", then ".join(
        f"by process {each.process} of {each.machine}"
        + (", redelivered" if each.redelivered else "")
        for each in facts.handed
    )
