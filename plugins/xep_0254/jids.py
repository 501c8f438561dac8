"""JIDs as a queue service compares them: of requests, of senders, and of creators."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

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
)
from qos.core.quota import domain_of
from qos.core.strings import bare
from qos.errors import InvalidArgument
from qos.jids import account_or_domain, normal_jid
from xep_0254.elements import bad_request

__all__ = ["creators_of", "normal_request", "sender_jid"]

#: A tuple: to look for a class in it takes less time than to make a union.
_OF_A_JID = (Subscribe, Unsubscribe, GetOptions, SetOptions)


def normal_request(request: Request) -> Request:
    """The request with its JIDs as a server writes them, so that they can be compared.

    Raises:
        Refusal: one of them is not a JID, or two of them are the same account.
    """
    if isinstance(request, SetAffiliations):
        affiliations: dict[str, Affiliation] = {}
        for jid, what in request.affiliations.items():
            account = bare(_normal_jid(jid))
            if account in affiliations:
                raise bad_request(f"two affiliations for {account}")
            affiliations[account] = what
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
    account, slash, resource = jid.partition("/")
    return f"{account[:-1]}{slash}{resource}" if account.endswith(".") else jid


def creators_of(
    creators: str | Collection[str], xmpp: ClientXMPP | ComponentXMPP
) -> frozenset[str] | None:
    """The accounts that may create nodes, for `qos.core.queue.bounds.may_create`.

    Raises:
        InvalidArgument: the value is neither a rule nor a list of accounts.
    """
    named: Collection[object]
    if creators == "anyone":
        return None
    if creators == "domain":
        domain = domain_of(str(xmpp.requested_jid))
        if xmpp.is_component:
            domain = domain.partition(".")[2]
        # A component without a domain above its own serves no accounts by default.
        named = [f"@{domain}"] if domain else []
    elif isinstance(creators, str):
        named = creators.split(",")
    else:
        named = arguments.collection("creators", creators, "accounts or @domains")
    try:
        return frozenset(
            account_or_domain(arguments.text("creators", each)) for each in named
        )
    except ValueError as error:
        wanted = "'domain', 'anyone', or accounts and @domains"
        why = "'all' is 'anyone' now" if creators == "all" else str(error)
        raise InvalidArgument("creators", creators, wanted, why=why) from error
