"""The requests of publishers and subscribers (XEP-0254, XEP-0060 §6, §7)."""

from __future__ import annotations

from collections.abc import Sequence

from qos.core.queue.access import (
    affiliation,
    is_owner,
    may_publish,
    may_subscribe,
)
from qos.core.queue.copying import copies
from qos.core.queue.effects import NotifyItem, QueueEffect, SaveItem
from qos.core.queue.item import (
    Affiliation,
    EndedItem,
    Subscription,
)
from qos.core.queue.node import QueueNode
from qos.core.queue.node_options import (
    TOPIC,
    BadOption,
    BadSelector,
    SubscribeOptions,
    subscribe_options,
)
from qos.core.queue.ready_items import FILTERS_MAX
from qos.core.queue.requests import (
    Extend,
    Fields,
    GetOptions,
    Publish,
    Refusal,
    Retract,
    SetOptions,
    Subscribe,
    Unlock,
    Unsubscribe,
    may_not_publish,
)
from qos.core.queue.results import (
    ExtendResult,
    Ok,
    OptionsResult,
    PublishResult,
    SubscribeResult,
)
from qos.core.queue.service import Queues, too_dear
from qos.core.queue.topic_node import TopicNode
from qos.core.record import replace
from qos.core.strings import bare, domain_of

__all__ = [
    "check_access",
    "extend",
    "get_options",
    "publish",
    "set_options",
    "settle",
    "subscribe",
    "subscription_of",
    "unsubscribe",
]

_Effects = list[QueueEffect]


def publish(
    service: Queues, request: Publish, requester: str, now: float
) -> tuple[PublishResult, _Effects]:
    """Publish items (XEP-0060 §7.1); see `QueueNode.publish`."""
    queue, account = service.queue(request.node), bare(requester)
    if not may_publish(queue.node, queue.options, account):
        raise may_not_publish(request.node, account)
    item_ids = tuple(entry.item_id for entry in request.entries)
    present = {} if request.new_ids else queue.live.find(item_ids)
    unsure = [
        entry.item_id
        for entry in (() if request.new_ids else request.entries)
        if (item := present.get(entry.item_id)) is None
        or (item.publisher, item.digest) != (account, entry.digest)
    ]
    effects = queue.publish(
        request.entries,
        account,
        present=present,
        ended_items=_ended_items(service, queue, unsure, now),
        next_seq=service.next_seq,
        bytes_left=service.bytes_left(queue),
        issued_at=request.issued_at,
        now=now,
    )
    if len(effects) == len(item_ids) and not isinstance(queue, TopicNode):
        # One for each new item, and most are new.
        return PublishResult(request.node, item_ids), effects
    new = {effect.item.item_id for effect in effects if isinstance(effect, SaveItem)}
    repeated = tuple(item_id for item_id in item_ids if item_id not in new)
    queue.repeated += len(repeated)
    if isinstance(queue, TopicNode):
        entries = [entry for entry in request.entries if entry.item_id in new]
        effects += copies(service, queue, entries, account, now)
    return PublishResult(request.node, item_ids, repeated), effects


def settle(
    service: Queues, request: Retract | Unlock, requester: str, now: float
) -> tuple[Ok, _Effects]:
    """Retract or unlock items (XEP-0254 §2.3, §2.4).

    See `item_lifecycle.check_settlement` for the rules.
    """
    queue = service.queue(request.node)
    stale_tokens = [
        (settlement.item_id, settlement.token)
        for settlement in request.settlements
        if settlement.token
        and (
            (item := queue.items.get(settlement.item_id)) is None
            or item.token != settlement.token
        )
    ]
    effects = queue.settle(
        request.settlements,
        requester,
        ended_items=service.ended_items.settled(request.node, stale_tokens)
        if stale_tokens
        else {},
        notify=not isinstance(request, Retract) or request.notify,
        now=now,
    )
    repeated = not effects
    return Ok(repeated), effects + service.place_dead(request.node, now)


def _ended_items(
    service: Queues, queue: QueueNode, item_ids: Sequence[str], now: float
) -> dict[str, list[EndedItem]]:
    window = queue.options.dedupe_window
    if not item_ids or not window:
        return {}
    # `publishing` decides exactly which of them count; the extra second makes sure that
    # rounding loses none.
    since = now - window - 1.0
    return service.ended_items.ended(queue.node.name, item_ids, since=since)


def extend(
    service: Queues, request: Extend, requester: str, now: float
) -> tuple[ExtendResult, _Effects]:
    """Extend locks (our extension): the worker is still working."""
    queue = service.queue(request.node)
    effects, left_s = queue.deliveries.extend(
        request.tokens, requester, seconds=request.seconds, now=now
    )
    item_ids = tuple(item_id for item_id, _ in request.tokens)
    return ExtendResult(request.node, left_s, item_ids), effects


# -- subscriptions ---------------------------------------------------------


def subscribe(
    service: Queues, request: Subscribe, requester: str, now: float
) -> tuple[SubscribeResult, _Effects]:
    """Subscribe (XEP-0254 §2.1); `queue_requests` must be given."""
    queue, account = service.queue(request.node), bare(requester)
    _check_jid(request.jid, account)
    check_access(queue, account)
    options = _options_for(queue, request)
    before = queue.subscriptions.get(request.jid)
    if before is None or before.dormant_since is not None:
        _check_bound(service, account)
    _check_selectors(service, queue, request.jid, options, now)
    # Subscribing again changes the options only.
    subid = service.new_id() if before is None else before.subid
    subscription = replace(
        _subscription(request.node, request.jid, subid, requester, options),
        link=request.link,
    )
    effects = queue.subscribe(
        subscription,
        requester,
        new_worker=options.new_worker,
        new_token=service.new_id,
        now=now,
    )
    sent_seqs = {
        effect.item.seq for effect in effects if isinstance(effect, NotifyItem)
    }
    presence_effects = service.works_at(requester, request.node)
    # The items that it holds are sent once, although two things ask for that: its
    # subscribing, and being heard of.
    effects += [
        effect
        for effect in presence_effects
        if not isinstance(effect, NotifyItem) or effect.item.seq not in sent_seqs
    ]
    effects += service.place_dead(request.node, now)
    return SubscribeResult(subscription), effects


def _options_for(queue: QueueNode, request: Subscribe) -> SubscribeOptions:
    """The options of a subscription; Refusal: there are none, or it is to a topic."""
    if isinstance(queue, TopicNode):
        raise Refusal(
            f"{request.node!r} is a topic, and nobody takes its items: create a queue "
            f"that copies from it ({TOPIC}), and subscribe to that",
            condition="feature-not-implemented",
            type="cancel",
            pubsub="unsupported",
            feature="subscribe",
        )
    options = None if request.options is None else _options(request.options)
    if options is None:
        raise Refusal(
            "the subscription needs its options",
            condition="not-acceptable",
            type="modify",
            pubsub="configuration-required",
            form=True,
        )
    return options


def unsubscribe(
    service: Queues, request: Unsubscribe, requester: str, _now: float
) -> tuple[Ok, _Effects]:
    """Unsubscribe (XEP-0060 §6.2); the locks stay (XEP-0254 §4)."""
    queue = service.queue(request.node)
    subscription_of(queue, request.jid, request.subid, requester)
    effects = queue.subscriptions.end(request.jid)
    service.forget(bare(requester), request.node)
    return Ok(), [*effects]


def get_options(
    service: Queues, request: GetOptions, requester: str, _now: float
) -> tuple[OptionsResult, _Effects]:
    """Show the options of a subscription (XEP-0060 §6.3.2)."""
    queue = service.queue(request.node)
    return OptionsResult(
        subscription_of(queue, request.jid, request.subid, requester)
    ), []


def set_options(
    service: Queues, request: SetOptions, requester: str, now: float
) -> tuple[Ok, _Effects]:
    """Change the options of a subscription (XEP-0060 §6.3.5).

    Options not given stay.
    """
    queue = service.queue(request.node)
    before = subscription_of(queue, request.jid, request.subid, requester)
    options = _options(request.options, before)
    assert options is not None
    _check_selectors(service, queue, request.jid, options, now)
    after = replace(
        _subscription(before.node, before.jid, before.subid, before.via, options),
        link=before.link,
    )
    return Ok(), queue.subscriptions.keep(after)


def _check_bound(service: Queues, account: str) -> None:
    bound = service.subscribers.refusal(account)
    if bound is None:
        return
    subject = {
        "account": f"{account} has",
        "domain": f"the accounts of {domain_of(account)} have",
        "total": "there are",
    }[bound]
    raise Refusal(
        f"{subject} as many subscriptions as are possible here; one must end first",
        condition="policy-violation",
        type="wait",
        pubsub="too-many-subscriptions",
    )


def _check_selectors(
    service: Queues, queue: QueueNode, jid: str, options: SubscribeOptions, now: float
) -> None:
    account, before = bare(jid), queue.subscriptions.get(jid)
    is_new = before is None or before.selector != options.selector
    wait_s = service.selector_time.wait_s(account, now)
    if options.selector and is_new and wait_s:
        raise Refusal(
            too_dear(account, wait_s), condition="policy-violation", type="wait"
        )
    owner = is_owner(queue.node, account)
    if not queue.subscriptions.has_room_for(options.selector, jid, owner=owner):
        raise Refusal(
            f"{account} has as many selectors at {queue.node.name!r} as its share of "
            f"{FILTERS_MAX} different ones; use one of those that are there, or end a "
            "subscription",
            condition="resource-constraint",
            type="wait",
        )


def _subscription(
    node: str, jid: str, subid: str, via: str, options: SubscribeOptions
) -> Subscription:
    return Subscription(
        node=node,
        jid=jid,
        subid=subid,
        via=via,
        queue_requests=options.queue_requests,
        batch=options.batch,
        durable_locks=options.durable_locks,
        resumable_locks=options.resumable_locks,
        acknowledged=options.acknowledged,
        selector=options.selector,
    )


def _options(
    form: Fields, before: Subscription | None = None
) -> SubscribeOptions | None:
    try:
        return subscribe_options(form, before)
    except BadOption as error:
        bad_selector = isinstance(error, BadSelector)
        raise Refusal(
            str(error),
            # The request is well-formed, but the service cannot read the selector.
            condition="not-acceptable" if bad_selector else "bad-request",
            type="modify",
            pubsub="invalid-options",
        ) from error


def subscription_of(
    queue: QueueNode, jid: str, subid: str, requester: str
) -> Subscription:
    """The subscription that the request means."""
    account = bare(requester)
    if bare(jid) != account:
        # XEP-0060 §6.2.3.3, §6.3.4.1.
        raise Refusal(
            f"{account} does not speak for {jid}", condition="forbidden", type="auth"
        )
    subscription = queue.subscriptions.get(jid)
    if subscription is None:
        raise Refusal(
            f"{jid} is not subscribed to {queue.node.name!r}",
            condition="unexpected-request",
            type="cancel",
            pubsub="not-subscribed",
        )
    if subid not in {"", subscription.subid}:
        raise Refusal(
            f"{subid!r} is not the subscription of {jid}",
            condition="not-acceptable",
            type="modify",
            pubsub="invalid-subid",
        )
    return subscription


def _check_jid(jid: str, account: str) -> None:
    # XEP-0060 §6.1.3.1: an account can subscribe only its own JIDs.
    if bare(jid) != account:
        raise Refusal(
            f"{account} does not speak for {jid}",
            condition="bad-request",
            type="modify",
            pubsub="invalid-jid",
        )


def check_access(queue: QueueNode, account: str) -> None:
    """Check that an account may subscribe.

    Raises:
        Refusal: it may not.
    """
    if may_subscribe(queue.node, queue.options, account):
        return
    name = queue.node.name
    refused = {
        Affiliation.OUTCAST: f"{account} is an outcast of {name!r}",
        Affiliation.PUBLISH_ONLY: f"{account} may only publish to {name!r}",
    }
    affiliation_ = affiliation(queue.node, account)
    if affiliation_ in refused:
        raise Refusal(refused[affiliation_], condition="forbidden", type="auth")
    # XEP-0060 §6.1.3.4.
    raise Refusal(
        f"{name!r} is for those on its whitelist, and {account} is not: an owner can make "
        "it a member",
        condition="not-allowed",
        type="cancel",
        pubsub="closed-node",
    )
