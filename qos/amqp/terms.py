"""The terms of a link: what a peer asks for in its attach, and what is in force.

By messaging §3.5.3 and §3.5.4 the answering attach shows what is in force: the filters
that we have, the outcomes, the distribution mode. A peer checks that itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from proton import (
    UNDESCRIBED,
    Array,
    Condition,
    Data,
    Described,
    Link,
    Terminus,
    symbol,
    ulong,
)

from qos.amqp import conditions
from qos.amqp.termini import Expiry, expiry_of
from qos.core.queue.lifetime import Lifetime
from qos.core.queue.terminus import DURABILITIES
from qos.core.queue.terminus import Terminus as DurableTerminus
from qos.engine.queue_engine import QueueEngine

__all__ = [
    "Source",
    "asked_by",
    "capabilities_of",
    "copy_terms",
    "lifetime_of",
    "no_node",
    "no_terminus",
    "no_topic",
    "offer",
    "refuse",
    "show_dynamic",
    "source_of",
    "why_not",
]

_OUTCOMES = (
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
)

#: The registered filter of JMS selectors, by its symbol and by its code.
_SELECTOR = symbol("apache.org:selector-filter:string")
_SELECTOR_CODE = ulong(0x0000468C00000004)

#: The capabilities of a topic, by the JMS mapping of AMQP.
TOPIC, TEMPORARY_TOPIC = "topic", "temporary-topic"

_LIFETIME = symbol("lifetime-policy")

_POLICIES = {
    lifetime: (ulong(code), symbol(f"amqp:{lifetime.value}:list"))
    for code, lifetime in enumerate(Lifetime, start=0x2B)
}


def why_not(link: Link) -> Condition | None:
    """Why no node could serve this link; None: one could."""
    if link.remote_target.type == Terminus.COORDINATOR:
        return Condition(conditions.NOT_IMPLEMENTED, "there are no transactions here")
    terminus = asked_by(link)
    if terminus.dynamic and terminus.address is not None:
        # Messaging §3.5.3.
        text = "a link that makes its node must not name one"
        return Condition(conditions.INVALID_FIELD, text)
    capabilities = capabilities_of(terminus)
    if TEMPORARY_TOPIC in capabilities or (terminus.dynamic and TOPIC in capabilities):
        text = "there are no temporary topics here: a link can make a queue"
        return Condition(conditions.NOT_IMPLEMENTED, text)
    return None


def no_topic(link: Link, node: str, engine: QueueEngine) -> Condition | None:
    """Why a node cannot serve this link: the peer wants a topic; None: it can."""
    is_queue = engine.node_type(node) == "queue"
    if not is_queue or TOPIC not in capabilities_of(asked_by(link)):
        return None
    text = f"{node!r} is a queue, and no topic"
    return Condition(conditions.NOT_IMPLEMENTED, text)


def capabilities_of(terminus: Terminus) -> set[str]:
    """The capabilities that a peer wants of a terminus."""
    data = terminus.capabilities
    data.rewind()
    if data.next() is None:
        return set()
    value = data.get_object()
    several = value.elements if isinstance(value, Array) else [value]
    return {str(name) for name in several}


def refuse(link: Link, condition: Condition) -> None:
    """Refuse an attach (transport §2.6.3): attach without a terminus, and detach."""
    no_terminus(link)
    link.condition = condition
    link.close()


def no_terminus(link: Link) -> None:
    """Attach without a terminus, which announces that the link ends."""
    _shown(link).type = Terminus.UNSPECIFIED
    link.open()


def no_node(node: str) -> Condition:
    """The condition for a node that is not there, or is hidden from the peer."""
    return Condition(conditions.NOT_FOUND, f"there is no node {node!r}")


def copy_terms(link: Link) -> None:
    """Show the terms in force (messaging §3.5.3, §3.5.4): addresses and settle modes.

    No target outlives the process: its durability is none.
    """
    for local, remote in (
        (link.source, link.remote_source),
        (link.target, link.remote_target),
    ):
        local.type = remote.type
        if remote.address is not None:
            local.address = remote.address
        local.expiry_policy = remote.expiry_policy
        local.timeout = expiry_of(remote).timeout_s
    link.snd_settle_mode = link.remote_snd_settle_mode
    link.rcv_settle_mode = link.remote_rcv_settle_mode
    if link.is_sender and link.snd_settle_mode == Link.SND_MIXED:
        link.snd_settle_mode = Link.SND_UNSETTLED


def asked_by(link: Link) -> Terminus:
    """The terminus on our side, as the peer asks for it."""
    return link.remote_source if link.is_sender else link.remote_target


def _shown(link: Link) -> Terminus:
    return link.source if link.is_sender else link.target


def lifetime_of(terminus: Terminus) -> Lifetime:
    """The lifetime policy that a peer asks for; by default its node ends with its link."""
    properties = terminus.properties
    properties.rewind()
    if properties.next() is not None:
        value = properties.get_object()
        policy = value.get(_LIFETIME) if isinstance(value, dict) else None
        if isinstance(policy, Described):
            for lifetime, (code, name) in _POLICIES.items():
                if policy.descriptor in (code, name):
                    return lifetime
    return Lifetime.DELETE_ON_CLOSE


def show_dynamic(link: Link, node: str) -> None:
    """Show the node that was made for the link, and its properties (messaging §3.5.9)."""
    terminus = _shown(link)
    terminus.dynamic = True
    terminus.address = node
    code, _ = _POLICIES[lifetime_of(asked_by(link))]
    modes = [symbol("move"), symbol("copy")]
    terminus.properties.put_object(
        {
            _LIFETIME: Described(code, []),
            symbol("supported-dist-modes"): Array(UNDESCRIBED, Data.SYMBOL, *modes),  # type: ignore[arg-type]  # as proton's own reader makes it
        }
    )


def offer(link: Link) -> None:
    """Name the outcomes that we know, all of messaging §3.4, and what a node is."""
    _shown(link).capabilities.put_object(symbol("queue"))
    outcomes = link.source.outcomes
    outcomes.put_array(False, Data.SYMBOL)
    outcomes.enter()
    for outcome in _OUTCOMES:
        outcomes.put_symbol(symbol(outcome))
    outcomes.exit()


def _selector_of(link: Link) -> str:
    """The selectors that the peer asks for, as one; they are shown as in force.

    A filter of any other type is left out: messaging §3.5.8.
    """
    data = link.remote_source.filter
    data.rewind()
    if data.next() is None:
        return ""
    filters = data.get_object()
    in_force = {}
    for name, entry in filters.items() if isinstance(filters, dict) else ():
        if not isinstance(entry, Described) or not isinstance(entry.value, str):
            continue
        if entry.descriptor in (_SELECTOR, _SELECTOR_CODE):
            in_force[symbol(name)] = entry
    if not in_force:
        return ""
    link.source.filter.put_object(in_force)
    selectors = [str(entry.value) for entry in in_force.values()]
    if len(selectors) == 1:
        return selectors[0]
    # All filters of a set have to hold.
    return " AND ".join(f"({selector})" for selector in selectors)


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a link to a consumer.

    Attributes:
        address: of a node, perhaps with the state of the items; see `split_address`.
        selector: of the items that it wants; '': of all.
        copies: it only wants to look.
        expiry: of the terminus.
    """

    address: str
    selector: str
    copies: bool
    expiry: Expiry


def source_of(
    link: Link, address: str | None, terminus: DurableTerminus | None
) -> Source | None:
    """The source that the peer asks for; it is shown as it is in force.

    Args:
        link: attached by the peer.
        address: of a node; None: the peer asks for its terminus as it was.
        terminus: the one that the core keeps, if it keeps any.

    Returns:
        None: there is neither.
    """
    if address is not None:
        expiry = expiry_of(link.remote_source)
        link.source.durability = _durability_of(link, expiry)
        return Source(address, _selector_of(link), _copies(link), expiry)
    if terminus is None:
        return None
    _show_durable(link, terminus)
    return Source(
        terminus.address, terminus.selector, terminus.copies, Expiry.of(terminus)
    )


def _durability_of(link: Link, expiry: Expiry) -> int:
    """The durability of a source that is in force.

    It is lowered to none if nothing of the terminus outlives its connection.
    """
    durability = int(link.remote_source.durability)
    return min(durability, len(DURABILITIES) - 1) if expiry.keeps else 0


def _show_durable(link: Link, terminus: DurableTerminus) -> None:
    """Show the terms in force of a terminus that the core keeps (messaging §3.5.3)."""
    source, expiry = link.source, Expiry.of(terminus)
    source.type = Terminus.SOURCE
    source.address = terminus.address
    source.durability = terminus.durability
    source.expiry_policy, source.timeout = expiry.policy, expiry.timeout_s
    mode = Terminus.DIST_MODE_COPY if terminus.copies else Terminus.DIST_MODE_MOVE
    source.distribution_mode = mode
    if terminus.selector:
        selector = Described(_SELECTOR_CODE, terminus.selector)
        source.filter.put_object({symbol("selector"): selector})


def _copies(link: Link) -> bool:
    """Whether the peer only wants to look (distribution mode `copy`)."""
    return bool(link.remote_source.distribution_mode == Terminus.DIST_MODE_COPY)
