"""The address of an attempt: a pure choice among the known resources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from qos.core.message.model import MARKS_NAMESPACE, NAMESPACES, Outgoing, Route
from qos.core.record import record

__all__ = ["Resource", "choose", "namespace_for"]


@record(frozen=True, slots=True)
class Resource:
    """An available resource of an account.

    Attributes:
        jid: its full JID.
        priority: of its presence.
        features: what its disco#info lists.
        silent: it has left requests without an answer for longer than an answer takes.
        answered: the larger, the later it has answered; 0: it never has.
    """

    jid: str
    priority: int
    features: AbstractSet[str]
    silent: bool = False
    answered: int = 0


def namespace_for(features: AbstractSet[str], order: Sequence[str]) -> str | None:
    """The first namespace in the order that the features contain."""
    for namespace in order:
        if namespace in features:
            return namespace
    return None


def to_jid(
    record: Outgoing,
    features: AbstractSet[str],
    order: Sequence[str],
    *,
    absent: bool = False,
) -> Route:
    """The route to a given JID, which always exists.

    Without an answer to disco#info, or with one without QoS, the first of all
    namespaces is used: the peer may support it and not say so.
    """
    namespace = record.namespace or namespace_for(features, order) or NAMESPACES[0]
    return Route(record.to, namespace, MARKS_NAMESPACE in features, absent)


def choose(
    record: Outgoing, resources: Iterable[Resource], order: Sequence[str]
) -> Route | None:
    """The resource of a bare JID that gets the next attempt, or None.

    First comes the resource that sent `received`, unless it is silent, then those that
    have not said that they do not hold the message. Among them evidence counts before
    what resources say of themselves: the silent come last, and first the one that has
    answered last, then the highest priority. In the second step another resource may be
    asked only if a hold makes its answer unambiguous, and if it knows holds.
    """
    candidates = []
    for resource in resources:
        namespace = namespace_for(resource.features, order)
        marked = MARKS_NAMESPACE in resource.features
        first_choice = resource.jid == record.peer
        if namespace is None and not first_choice:
            continue
        if record.delivers and not first_choice and not (record.hold and marked):
            continue
        route = Route(resource.jid, record.namespace or namespace or order[0], marked)
        unasked = resource.jid not in record.not_mine
        rank = (
            *(first_choice and not resource.silent, unasked, not resource.silent),
            *(first_choice, resource.answered, resource.priority, resource.jid),
        )
        candidates.append((rank, route))
    return max(candidates, key=lambda pair: pair[0])[1] if candidates else None
