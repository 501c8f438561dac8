"""The XML of a batch: requests and answers, read and written, as pure functions.

A request in a batch is the request of the proto-XEP, with the marks placed where they
cost a server less. All else in it is read by `xep_qos.stanza`, as if it were alone. The
rules are in BATCH.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from xml.etree import ElementTree as ET

from qos.core.message.batch import BATCH_NAMESPACE, ELEMENTS_MAX
from qos.core.message.effects import Answer, Transmit
from qos.core.message.model import Level
from qos.core.message.sender_table import Reply
from qos.core.strings import ID_CHARS_MAX
from qos.xml_text import attribute, render_iq, text
from xep_qos import stanza

__all__ = [
    "BATCH",
    "REQUEST_OR_BATCH",
    "batch_in",
    "parse_answers",
    "parse_batch",
    "parse_request",
    "render_answer",
    "render_answers",
    "render_batch",
    "render_element",
]

#: The element of a batch; and the elements that make an iq a request to us.
BATCH = f"{{{BATCH_NAMESPACE}}}batch"
REQUEST_OR_BATCH = stanza.REQUEST_TAGS | {BATCH}

_RECEIVED = f"{{{BATCH_NAMESPACE}}}received"
_RESULT = f"{{{BATCH_NAMESPACE}}}result"
_ERROR = f"{{{BATCH_NAMESPACE}}}error"
_REJECTED = f"{{{BATCH_NAMESPACE}}}rejected"
_STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"


# -- reading ---------------------------------------------------------------


def batch_in(iq: ET.Element) -> ET.Element | None:
    """The batch in an iq, or None."""
    return iq.find(BATCH)


def parse_batch(iq: ET.Element, batch: ET.Element) -> list[tuple[str, ET.Element]]:
    """The requests in a batch, each with the id of the iq that it would be alone.

    Raises:
        RemoteProtocolError: it is no valid batch: bad-request/modify.
    """
    if not iq.get("id"):
        raise stanza.bad_request("an iq without an id")
    if not 0 < len(batch) <= ELEMENTS_MAX:
        raise stanza.bad_request(f"a batch of {len(batch)}, not 1 to {ELEMENTS_MAX}")
    requests, ids, names = [], set(), set()
    for element in batch:
        iq_id, msg_id = element.get("id", ""), element.get("msgId")
        if element.tag not in stanza.REQUEST_TAGS:
            raise stanza.bad_request("something else than a request in a batch")
        if not 0 < len(iq_id) <= ID_CHARS_MAX:
            raise stanza.bad_request(
                f"an id in a batch has 1 to {ID_CHARS_MAX} characters"
            )
        if iq_id in ids or (msg_id and (element.tag, msg_id) in names):
            raise stanza.bad_request("the same id or msgId twice in a batch")
        ids.add(iq_id)
        names.add((element.tag, msg_id))
        requests.append((iq_id, element))
    return requests


def parse_request(
    iq_id: str,
    element: ET.Element,
    iq: ET.Element,
    batch: ET.Element,
    make: Callable[..., stanza.AnyRequest],
    keep: stanza.Keep | None,
    *,
    without_message: bool = False,
) -> stanza.AnyRequest:
    """Read one of the requests in a batch; see stanza.request_of."""
    return stanza.request_of(
        element,
        make,
        keep,
        without_message=without_message,
        mark=batch.get("sender", ""),
        hold=element.get("hold", ""),
        iq_id=iq_id,
        source=iq.get("from", ""),
        to=iq.get("to", ""),
    )


def parse_answers(iq: ET.Element) -> Iterator[Reply]:
    """The answers in the result for a batch.

    Elements that are no answers are left out, as if they had not come.
    """
    source = iq.get("from", "")
    batch = batch_in(iq)
    for answer in () if batch is None else batch:
        iq_id, tag = answer.get("id", ""), answer.tag
        hold = answer.get("hold")
        if len(hold or "") > ID_CHARS_MAX:
            continue  # we would have to repeat it: not a valid answer
        if tag == _RECEIVED:
            received, credit = answer.get("msgId", ""), answer.get("credit")
            yield Reply(
                iq_id,
                source,
                received=received,
                hold=hold,
                credit=stanza.credit_of(credit),
            )
        elif tag == _RESULT:
            yield Reply(iq_id, source, hold=hold)
        elif tag in {_ERROR, _REJECTED}:
            yield Reply(
                iq_id,
                source,
                stanza.condition_of(answer),
                answer.get("type", "cancel"),
                hold=hold,
                rejected=tag == _REJECTED,
                redelivered=answer.get("redelivered") in {"true", "1"},
                text=stanza.error_text(answer),
            )


# -- writing ---------------------------------------------------------------


def render_element(transmit: Transmit) -> str:
    """A request as it is written in a batch."""
    record, route = transmit.record, transmit.route
    msg_id = attribute(record.msg_id)
    if transmit.step == "deliver":
        hold = f" hold={attribute(record.hold)}" if record.hold else ""
        return (
            f"<deliver xmlns='{route.namespace}' id={attribute(record.deliver_id)} "
            f"msgId={msg_id}{hold}/>"
        )
    iq_id = attribute(record.offer_id)
    if record.level is Level.ASSURED:
        return (
            f"<assured xmlns='{route.namespace}' id={iq_id} msgId={msg_id}>"
            f"{record.payload}</assured>"
        )
    return (
        f"<acknowledged xmlns='{route.namespace}' id={iq_id}>"
        f"{record.payload}</acknowledged>"
    )


def render_batch(
    iq_id: str, to: str, sender: str, elements: Iterable[str], *, store_id: str
) -> str:
    """The iq of a batch.

    Args:
        iq_id: the id of the batch.
        to: the peer.
        sender: the from, if the stream needs one (as a component's does).
        elements: the results of render_element.
        store_id: the mark of our store.
    """
    mark = f" sender={attribute(store_id)}"
    return render_iq("set", iq_id, _batch(elements, mark), to=to, sender=sender)


def render_answer(iq_id: str, msg_id: str, answer: Answer) -> str:
    """An answer as it is written in the result for a batch."""
    name = answer.kind
    msg_id = f" msgId={attribute(msg_id)}" if name == "received" else ""
    hold = f" hold={attribute(answer.hold)}" if answer.hold else ""
    credit = "" if answer.credit is None else f" credit='{answer.credit}'"
    head = f"<{name} id={attribute(iq_id)}{msg_id}{hold}{credit}"
    if name not in {"error", "rejected"}:
        return f"{head}/>"
    again = " redelivered='true'" if answer.redelivered else ""
    inside = f"<{answer.condition} xmlns='{_STANZAS}'/>"
    if answer.text:
        inside += f"<text xmlns='{_STANZAS}'>{text(answer.text)}</text>"
    return f"{head} type='{answer.error_type}'{again}>{inside}</{name}>"


def render_answers(iq_id: str, to: str, sender: str, answers: Iterable[str]) -> str:
    """The result for a batch, with these results of render_answer."""
    return render_iq("result", iq_id, _batch(answers), to=to, sender=sender)


def _batch(content: Iterable[str], mark: str = "") -> str:
    return f"<batch xmlns='{BATCH_NAMESPACE}'{mark}>{''.join(content)}</batch>"
