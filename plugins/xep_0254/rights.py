"""The requesters of a queue service: their JIDs, and their rights.

The rights are looked at before anything else in a request is read: a payload is dear to
read, and a stranger's is not wanted. This module knows which requests need which right.
The requests themselves decide in `qos.core.queue`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TypeAlias
from xml.etree import ElementTree as ET

from slixmpp import ClientXMPP, ComponentXMPP

from qos import arguments
from qos.core.queue.item import Affiliation
from qos.core.queue.requests import (
    GetOptions,
    Refusal,
    Request,
    SetAffiliations,
    SetOptions,
    Subscribe,
    Unsubscribe,
    may_not_publish,
    no_node,
)
from qos.core.strings import bare, domain_of
from qos.engine.queue_state import Rights
from qos.errors import InvalidArgument
from qos.jids import account_or_domain, normal_jid
from xep_0254.elements import bad_request, extended
from xep_0254.namespaces import PUBSUB, UNLOCKS
from xep_0254.requests import NODE_CHARS_MAX

__all__ = ["RightsAt", "check_rights", "creators_of", "normal_request", "sender_jid"]

#: Returns the rights of a full JID at a node; None: there is none, or it is hidden.
RightsAt: TypeAlias = Callable[[str, str], Rights | None]

_PUBLISH = f"{{{PUBSUB}}}publish"

#: Requests that somebody without a right may make: for a node that is not there yet, or
#: for what the requester still has at the node.
_OPEN = frozenset(
    {
        *(
            f"{{{PUBSUB}}}{name}"
            for name in ("create", "affiliations", "subscriptions")
        ),
        f"{{{PUBSUB}}}retract",
        *UNLOCKS,
        extended("extend"),
    }
)

#: A tuple: to look for a class in it takes less time than to make a union.
_OF_A_JID = (Subscribe, Unsubscribe, GetOptions, SetOptions)


def check_rights(pubsub: ET.Element, rights: RightsAt, requester: str) -> None:
    """Check that the requester may ask for this at all.

    Args:
        pubsub: the element of a request; it may be malformed.
        rights: of the service.
        requester: a full JID.

    Raises:
        Refusal: it may not use the node, or not publish to it.
    """
    for child in pubsub:
        node = child.get("node", "")
        if not node or len(node) > NODE_CHARS_MAX or child.tag in _OPEN:
            continue
        node_rights = rights(node, requester)
        if node_rights is None:
            raise no_node(node)
        if child.tag == _PUBLISH and not node_rights.publish:
            raise may_not_publish(node, bare(requester))


def normal_request(request: Request) -> Request:
    """The request with its JIDs as a server writes them, so that they can be compared.

    Raises:
        Refusal: one of them is not a JID, or two of them are the same account.
    """
    if isinstance(request, SetAffiliations):
        affiliations: dict[str, Affiliation] = {}
        for jid, affiliation in request.affiliations.items():
            account = bare(_normal_jid(jid))
            if account in affiliations:
                raise bad_request(f"two affiliations for {account}")
            affiliations[account] = affiliation
        return replace(request, affiliations=affiliations)
    if isinstance(request, _OF_A_JID):
        return replace(request, jid=_normal_jid(request.jid))
    return request


def _normal_jid(jid: str) -> str:
    try:
        return normal_jid(jid)
    except ValueError as error:
        raise Refusal(str(error), condition="jid-malformed", type="modify") from error


def sender_jid(jid: str) -> str:
    """The JID of the sender of a stanza, without a dot at the end of its domain.

    A server sends the rest in its normal form; by RFC 7622 §3.2 we have to strip the
    dot.
    """
    account = bare(jid)
    return account[:-1] + jid[len(account) :] if account.endswith(".") else jid


def creators_of(
    creators: str | Collection[str], xmpp: ClientXMPP | ComponentXMPP
) -> frozenset[str] | None:
    """The accounts that may create nodes, for `qos.core.queue.bounds.may_create`.

    Raises:
        InvalidArgument: the value is neither a rule nor a list of accounts.
    """
    entries: Collection[object]
    if creators == "anyone":
        return None
    if creators == "domain":
        domain = domain_of(str(xmpp.requested_jid))
        if xmpp.is_component:
            domain = domain.partition(".")[2]
        # A component without a domain above its own serves no accounts by default.
        entries = [f"@{domain}"] if domain else []
    elif isinstance(creators, str):
        entries = creators.split(",")
    else:
        entries = arguments.collection("creators", creators, "accounts or @domains")
    try:
        return frozenset(
            account_or_domain(arguments.text("creators", entry)) for entry in entries
        )
    except ValueError as error:
        expected = "'domain', 'anyone', or accounts and @domains"
        why = "'all' is 'anyone' now" if creators == "all" else str(error)
        raise InvalidArgument("creators", creators, expected, why=why) from error
