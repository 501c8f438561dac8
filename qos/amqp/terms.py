"""The terms of a link: what a peer asks for in its attach, and what is in force.

By messaging §3.5.3 and §3.5.4 the answering attach shows what is in force: the filters
that we have, the outcomes, the distribution mode. A peer checks that itself.
"""

from __future__ import annotations

from proton import Condition, Data, Described, Link, Terminus, symbol, ulong

from qos.amqp import conditions

__all__ = [
    "copies",
    "copy_terms",
    "no_node",
    "offer_outcomes",
    "refuse",
    "selector_of",
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


def why_not(link: Link) -> Condition | None:
    """Why no node could serve this link; None: one could."""
    if link.remote_target.type == Terminus.COORDINATOR:
        return Condition(conditions.NOT_IMPLEMENTED, "there are no transactions here")
    terminus = link.remote_target if link.is_receiver else link.remote_source
    if terminus.dynamic:
        return Condition(conditions.NOT_IMPLEMENTED, "nodes are not made by attaching")
    return None


def refuse(link: Link, condition: Condition) -> None:
    """Refuse an attach (transport §2.6.3): attach without a terminus, and detach."""
    terminus = link.target if link.is_receiver else link.source
    terminus.type = Terminus.UNSPECIFIED
    link.open()
    link.condition = condition
    link.close()


def no_node(node: str) -> Condition:
    """The condition for a node that is not there, or is hidden from the peer."""
    return Condition(conditions.NOT_FOUND, f"there is no node {node!r}")


def copy_terms(link: Link) -> None:
    """Show what is in force (messaging §3.5.3, §3.5.4): addresses and settle modes.

    No terminus is kept: its durability is none, and it ends with the link.
    """
    for ours, its in (
        (link.source, link.remote_source),
        (link.target, link.remote_target),
    ):
        ours.type = its.type
        if its.address is not None:
            ours.address = its.address
        ours.expiry_policy = Terminus.EXPIRE_WITH_LINK
    link.snd_settle_mode = link.remote_snd_settle_mode
    link.rcv_settle_mode = link.remote_rcv_settle_mode
    if link.is_sender and link.snd_settle_mode == Link.SND_MIXED:
        link.snd_settle_mode = Link.SND_UNSETTLED


def offer_outcomes(source: Terminus) -> None:
    """Name the outcomes that we know: all of messaging §3.4."""
    outcomes = source.outcomes
    outcomes.put_array(False, Data.SYMBOL)
    outcomes.enter()
    for each in _OUTCOMES:
        outcomes.put_symbol(symbol(each))
    outcomes.exit()


def selector_of(link: Link) -> str:
    """The selectors that the peer asks for, as one; they are shown as in force.

    A filter of any other type is left out: messaging §3.5.8.
    """
    asked = link.remote_source.filter
    asked.rewind()
    if asked.next() is None:
        return ""
    filters = asked.get_object()
    found = {}
    for name, each in filters.items() if isinstance(filters, dict) else ():
        if not isinstance(each, Described) or not isinstance(each.value, str):
            continue
        if each.descriptor in (_SELECTOR, _SELECTOR_CODE):
            found[symbol(name)] = each
    if not found:
        return ""
    link.source.filter.put_object(found)
    selectors = [str(each.value) for each in found.values()]
    if len(selectors) == 1:
        return selectors[0]
    # All filters of a set have to hold.
    return " AND ".join(f"({each})" for each in selectors)


def copies(link: Link) -> bool:
    """Whether the peer only wants to look (distribution mode `copy`)."""
    return bool(link.remote_source.distribution_mode == Terminus.DIST_MODE_COPY)
