"""Sending: an assured message to a device, once, and its outcome.

When a post is answered, its message is in the outbox of the service. The id of the message
is derived from the link or the key of the post, so a repeated post finds the message, also
after a crash.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from qos.core.message.model import Ended, Outgoing
from qos.core.queue.publishing import ONCE_S_MAX
from qos.core.queue.requests import Refusal
from qos.core.rest.link_header import Link
from qos.core.rest.sending import Sending, reading_sending, render_outcome
from qos.core.rest.waits import wait_of
from qos.errors import MessageTooLarge, OutboxFull, StoreError, StoreFull
from qos.ids import new_id
from qos.jids import normal_jid
from qos.rest.calls import Answer, Call, as_text
from qos.rest.paths import url
from qos.rest.posting import USED, idempotency_key, link_of

if TYPE_CHECKING:
    from qos.core.rest.one_off import OneOff
    from xep_qos.relay import Relay

__all__ = ["check_device", "check_link", "device", "send", "sent"]

_USE = "send"
_JSON = "application/json"


async def check_device(call: Call) -> None:
    """Check the right to send; of a message that was sent before, all is known.

    Raises:
        Refusal: the user may not send to this JID.
    """
    to = _to(call)
    key = idempotency_key(call.headers) if call.method == "POST" else ""
    if key:
        msg_id = call.services.one_off.message_id(to, call.account, key)
        if await _relay(call).once.known(msg_id) is not None:
            return
    _check(call, to)


async def check_link(call: Call) -> None:
    """Check that the one-off link is the user's.

    Raises:
        Refusal: it is not.
    """
    link_of(call, _USE, _to(call))


async def device(call: Call) -> Answer:
    """Show what can be done; give a one-off link; send a message by a key."""
    to = _to(call)
    if call.method == "POST" and (key := idempotency_key(call.headers)):
        return await _send(call, to, key)
    _check(call, to)
    if call.method != "POST":
        location = url("device", jid=to)
        rels = ("post-message-once", "message-factory")
        return Answer(200, links=[Link(location, rel) for rel in rels])
    if call.body:
        raise _bad(
            "nothing is sent here: post the message to the link create-next, which an "
            "empty post gives, or with an Idempotency-Key"
        )
    return Answer(200, links=[_next(call, to)])


async def send(call: Call) -> Answer:
    """Send a message by its one-off link."""
    to = _to(call)
    link = link_of(call, _USE, to)
    answer = await _send(call, to, link.item_id, link)
    answer.links.append(_next(call, to))
    return answer


async def sent(call: Call) -> Answer:
    """Tell the outcome of a message; wait for it, if the client asks for that."""
    to = _to(call)
    relay = call.services.relay
    wait = wait_of(call.headers)
    msg_id = call.services.one_off.message_id(to, call.account, call.path["item"])
    if relay is not None and wait.seconds:
        message = relay.find(msg_id)
        if message is not None and not isinstance(message, Ended):
            await relay.wait(msg_id, wait.seconds)
    message = None if relay is None else relay.find(msg_id)
    if message is None:
        text = "no such message was sent, or its outcome is not remembered any more"
        raise Refusal(text, condition="item-not-found", type="cancel")
    location = _location(call, to)
    answer = Answer(200, _headers(), [Link(location, "self")], render_outcome(message))
    if not isinstance(message, Ended):
        answer.status = 202
        answer.headers |= {
            "Location": location,
            "Retry-After": "0" if wait.seconds else "1",
        }
    if wait.applied:
        answer.headers["Preference-Applied"] = wait.applied
    return answer


async def _send(
    call: Call, to: str, item_id: str, link: OneOff | None = None
) -> Answer:
    """Send a message, unless it was sent before.

    Args:
        call: with the message.
        to: the full JID.
        item_id: of the link, or the key.
        link: None: a repeat has to have the same content.
    """
    services = call.services
    relay = _relay(call)
    msg_id = services.one_off.message_id(to, call.account, item_id)
    message = await relay.once.known(msg_id)
    sending: Sending | None = None
    if message is None:
        if link is not None and services.engine.now() >= link.issued_at + ONCE_S_MAX:
            return as_text(410, "the link is too old, and nothing was sent by it")
        _check(call, to)
        sending = await _read(call, relay)
        # It may have been sent by another request meanwhile.
        message = await relay.once.known(msg_id)
        if message is None:
            _count(call)
            message = await _accepted(call, relay, to, msg_id, sending)
    if message is not None and link is not None:
        return as_text(405, "it was sent before", **USED)
    if message is not None:
        sending = sending or await _read(call, relay)
        if message.digest != sending.digest:
            text = f"another message to {to} had this Idempotency-Key"
            raise Refusal(text, condition="conflict", type="cancel")
    message = message or relay.find(msg_id)
    answer = Answer(202, _headers(), body=render_outcome(message) if message else b"")
    answer.headers["Content-Location"] = url("sent", jid=to, item=item_id)
    return answer


async def _read(call: Call, relay: Relay) -> Sending:
    reading = reading_sending(
        call.body,
        call.headers,
        call.query,
        now=call.services.engine.now(),
        original_from="" if relay.speaks_as(call.account) else call.account,
    )
    return await call.stepped(reading)


async def _accepted(
    call: Call, relay: Relay, to: str, msg_id: str, sending: Sending
) -> Outgoing | Ended | None:
    """See Once.accept.

    Raises:
        Refusal: it was not accepted.
    """
    try:
        return await relay.accept(
            to,
            sending.payload,
            account=call.account,
            msg_id=msg_id,
            digest=sending.digest,
            ttl_s=sending.ttl_s,
        )
    except MessageTooLarge as error:
        raise Refusal(str(error), condition="not-acceptable", type="modify") from None
    except OutboxFull as error:
        owner = "of yours " if error.account else ""
        text = f"{error.limit} {error.unit} {owner}wait for their devices already"
        raise Refusal(text, condition="resource-constraint", type="wait") from None
    except StoreFull:
        text = "the message could not be written: the disk of the service is full"
        raise Refusal(text, condition="internal-server-error", type="wait") from None
    except StoreError:
        # See Outbox.submit. A repeat is written again, and is the same message.
        text = (
            "the disk of the service has failed, and the message may be sent after a "
            "restart: post it again to the same URL, and it is sent once"
        )
        raise Refusal(text, condition="internal-server-error", type="wait") from None


def _check(call: Call, to: str) -> None:
    """Check the right to send.

    Raises:
        Refusal: the user may not send to this JID.
    """
    targets = call.services.targets
    if targets is None or not targets.allow(call.account, to):
        text = f"{call.account} may not send to {to}"
        raise Refusal(text, condition="forbidden", type="auth")


def _count(call: Call) -> None:
    """Count a message that is sent.

    Raises:
        Refusal: too many are sent at this moment.
    """
    now = asyncio.get_running_loop().time()
    own = call.services.sends_of_accounts
    if own.wait_s(call.account, now):
        text = "this user sends too many messages at this moment"
        raise Refusal(text, condition="policy-violation", type="wait")
    if call.services.sends.wait_s("", now):
        text = "too many messages are sent at this moment"
        raise Refusal(text, condition="resource-constraint", type="wait")
    call.services.sends.take("", 1, now)
    own.take(call.account, 1, now)


def _relay(call: Call) -> Relay:
    """The relay.

    Raises:
        Refusal: there is none.
    """
    if call.services.relay is None:
        text = "this service sends no messages to devices"
        raise Refusal(text, condition="forbidden", type="cancel")
    return call.services.relay


def _to(call: Call) -> str:
    """The full JID in the path.

    Raises:
        Refusal: it is none.
    """
    try:
        to = normal_jid(call.path["jid"])
    except ValueError as error:
        raise _bad(str(error)) from None
    if "/" not in to:
        raise _bad(f"a full JID is expected, such as {to}/RESOURCE, with its / as %2F")
    return to


def _next(call: Call, to: str) -> Link:
    services = call.services
    token = services.one_off.new(
        _USE, to, call.account, item_id=new_id(), now=services.engine.now()
    )
    return Link(url("send", jid=to, link=token), "create-next")


def _location(call: Call, to: str) -> str:
    return url("sent", jid=to, item=call.path["item"])


def _headers() -> dict[str, str]:
    return {"Content-Type": _JSON, "Cache-Control": "no-store"}


def _bad(why: str) -> Refusal:
    return Refusal(why, condition="bad-request", type="modify")
