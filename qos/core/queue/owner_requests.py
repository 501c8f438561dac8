"""The requests of owners to a queue service (XEP-0060 §8), one function for each."""

from __future__ import annotations

from collections.abc import Mapping

from qos.core.queue.access import affiliation, is_owner
from qos.core.queue.bounds import may_create
from qos.core.queue.dead_letters import bind, released, shown_config
from qos.core.queue.effects import (
    QueueEffect,
    SaveNode,
)
from qos.core.queue.item import Affiliation, Node
from qos.core.queue.node import QueueNode
from qos.core.queue.node_options import (
    DEAD_LETTER_NODE,
    NODE_FIELDS,
    TOPIC,
    BadOption,
    node_options,
)
from qos.core.queue.requests import (
    Affiliations,
    Configure,
    Create,
    DefaultConfig,
    Delete,
    GetConfigure,
    Purge,
    Refusal,
    SetAffiliations,
    Subscriptions,
)
from qos.core.queue.results import (
    AffiliationsResult,
    ConfigureResult,
    CreateResult,
    Ok,
    SubscriptionsResult,
)
from qos.core.queue.service import Queues
from qos.core.queue.topics import check_create, check_name, check_unchanged
from qos.core.record import replace
from qos.core.strings import bare, domain_of
from qos.core.url_segments import why_no_segment

__all__ = [
    "affiliations",
    "configure",
    "create",
    "default_config",
    "delete",
    "get_configure",
    "owned",
    "purge",
    "set_affiliations",
    "subscriptions",
]

#: The number of affiliations of one node: all of them are written with the node.
_AFFILIATIONS_MAX = 1000

_Effects = list[QueueEffect]


def create(
    service: Queues, request: Create, requester: str, now: float
) -> tuple[CreateResult, _Effects]:
    """Create a node (XEP-0060 §8.1)."""
    account = bare(requester)
    # To copy from a topic is to subscribe to it, which others may do too.
    copies = request.config.get(TOPIC, "").strip() != ""
    if not (copies or may_create(service.creators, account)):
        raise Refusal(
            f"{account} may not create nodes here (`xmpp-qos queue serve --creators` "
            "says who may)",
            condition="forbidden",
            type="auth",
        )
    name = request.node or service.new_id()
    if why := why_no_segment(name):
        raise Refusal(f"the node {why}", condition="bad-request", type="modify")
    config = _config(request.config)
    check_name(name, config, account)
    check_create(service.nodes, service.topics, config, account)
    # Last: only who may create a node with this configuration learns that its name is
    # taken. A name can be given only once, so this cannot be hidden.
    if name in service.nodes:
        raise Refusal(f"there is a node {name!r}", condition="conflict", type="cancel")
    _check_bound(service, account)
    node = Node(
        name=name,
        identity=service.new_id(),
        created_at=now,
        creator=account,
        config=config,
        affiliations={account: Affiliation.OWNER},
        lifetime="" if request.lifetime is None else request.lifetime.value,
        gen=service.next_gen,
    )
    node = bind(service.nodes, node, account)
    service.add(node, now=now)
    return CreateResult(name), [SaveNode(node)]


def default_config(
    _service: Queues, _request: DefaultConfig, _requester: str, _now: float
) -> tuple[ConfigureResult, _Effects]:
    """Show the default configuration (XEP-0060 §8.3)."""
    return ConfigureResult(None), []


def get_configure(
    service: Queues, request: GetConfigure, requester: str, _now: float
) -> tuple[ConfigureResult, _Effects]:
    """Show the configuration of a node (XEP-0060 §8.2.1)."""
    node = owned(service, request.node, requester).node
    return ConfigureResult(shown_config(service.nodes, node)), []


def configure(
    service: Queues, request: Configure, requester: str, now: float
) -> tuple[Ok, _Effects]:
    """Change the configuration of a node (XEP-0060 §8.2.4); running deadlines stay."""
    queue = owned(service, request.node, requester)
    config = _config({**queue.node.config, **request.config})
    check_unchanged(queue.node.config, config)
    node = replace(queue.node, config=config)
    if DEAD_LETTER_NODE in request.config:
        node = bind(service.nodes, node, bare(requester))
    queue.set_up(node)
    service.topics.keep(queue)
    return Ok(), [SaveNode(node), *service.enforce_access(request.node, now)]


def delete(
    service: Queues, request: Delete, requester: str, now: float
) -> tuple[Ok, _Effects]:
    """Delete a node with its locked items; remembered ids end too (XEP-0060 §8.4)."""
    owned(service, request.node, requester)
    return Ok(), service.delete(request.node)


def purge(
    service: Queues, request: Purge, requester: str, now: float
) -> tuple[Ok, _Effects]:
    """Remove all items of a node, locked and dead ones too (XEP-0060 §8.5)."""
    queue = owned(service, request.node, requester)
    notices = queue.notify_workers("purge")
    return Ok(), [*queue.purge(now), *notices]


def affiliations(
    service: Queues, request: Affiliations, requester: str, _now: float
) -> tuple[AffiliationsResult, _Effects]:
    """List affiliations (XEP-0060 §5.7, §8.9.1)."""
    name = request.node
    if request.owner:
        node = owned(service, name, requester).node
        entries = tuple(
            (name, jid, affiliation_) for jid, affiliation_ in node.affiliations.items()
        )
        return AffiliationsResult(name, entries, owner=True), []
    account = bare(requester)
    own = (
        (queue.node.name, account, affiliation(queue.node, account))
        for queue in _nodes_for(service, name, account)
    )
    entries = tuple(entry for entry in own if entry[2] is not Affiliation.NONE)
    return AffiliationsResult(name, entries), []


def set_affiliations(
    service: Queues, request: SetAffiliations, requester: str, now: float
) -> tuple[Ok, _Effects]:
    """Change affiliations (XEP-0060 §8.9.2).

    An outcast loses subscriptions and locks.
    """
    queue = owned(service, request.node, requester)
    changed: dict[str, Affiliation] = dict(queue.node.affiliations)
    for jid, affiliation_ in request.affiliations.items():
        if affiliation_ is Affiliation.NONE:
            changed.pop(bare(jid), None)
        else:
            changed[bare(jid)] = affiliation_
    if Affiliation.OWNER not in changed.values():
        raise _not_acceptable("a node needs an owner")
    if len(changed) > _AFFILIATIONS_MAX:
        raise _not_acceptable(f"a node has at most {_AFFILIATIONS_MAX} affiliations")
    node = released(replace(queue.node, affiliations=changed))
    queue.set_up(node)
    return Ok(), [SaveNode(node), *service.enforce_access(request.node, now)]


def subscriptions(
    service: Queues, request: Subscriptions, requester: str, _now: float
) -> tuple[SubscriptionsResult, _Effects]:
    """List subscriptions (XEP-0060 §5.6, §8.8.1)."""
    name = request.node
    if request.owner:
        queue = owned(service, name, requester)
        entries = tuple(queue.subscriptions.values())
        return SubscriptionsResult(name, entries, owner=True), []
    account = bare(requester)
    queues = _nodes_for(service, name, account)
    entries = tuple(
        subscription
        for queue in queues
        for subscription in queue.subscriptions.values()
        if bare(subscription.jid) == account
    )
    return SubscriptionsResult(name, entries), []


# -- checks ----------------------------------------------------------------


def _nodes_for(service: Queues, name: str, account: str) -> list[QueueNode]:
    """The node that an account asks about; without a name, all nodes.

    Outcasts too may see their own affiliation with a node.
    """
    if not name:
        return list(service.nodes.values())
    queue = service.nodes.get(name)
    if queue is not None and affiliation(queue.node, account) is not Affiliation.NONE:
        return [queue]
    return [service.shown(name, account)]


def owned(service: Queues, name: str, requester: str) -> QueueNode:
    """The node of this name.

    Raises:
        Refusal: there is no such node, or the requester does not own it.
    """
    queue = service.queue(name)
    account = bare(requester)
    if not is_owner(queue.node, account):
        raise Refusal(
            f"{account} does not own {name!r}", condition="forbidden", type="auth"
        )
    return queue


def _config(form: Mapping[str, str]) -> dict[str, str]:
    """The values that differ from the default, in normal form."""
    try:
        node_options(form)
    except BadOption as error:
        raise _not_acceptable(str(error)) from error
    checked = {
        field.var: field.check(form[field.var])
        for field in NODE_FIELDS
        if field.var in form
    }
    defaults = {field.var: field.default for field in NODE_FIELDS}
    return {var: value for var, value in checked.items() if value != defaults[var]}


def _check_bound(service: Queues, account: str) -> None:
    bound = service.nodes_created.refusal(account)
    if bound is None:
        return
    subject = {
        "account": f"{account} has created",
        "domain": f"the accounts of {domain_of(account)} have created",
        "total": "there are",
    }[bound]
    raise Refusal(
        f"{subject} as many nodes as are possible here; one must be deleted first",
        condition="resource-constraint",
        type="wait",
    )


def _not_acceptable(text: str) -> Refusal:
    return Refusal(text, condition="not-acceptable", type="modify")
