"""The XML of requests and answers, read and written, as pure functions.

Source: the proto-XEP Quality of Service, Use Cases and XML Schema; the marks are our
own. Elements are matched by local name where the proto-XEP's examples and its schema
differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar
from xml.etree import ElementTree as ET

from qos import arguments
from qos.core.message.effects import Answer, Transmit
from qos.core.message.model import MARKS_NAMESPACE, NAMESPACES, Level
from qos.core.message.receiver_table import Request
from qos.core.message.sender_table import Reply
from qos.core.strings import ID_CHARS_MAX, one_line
from qos.errors import InvalidArgument, LocalProtocolError, RemoteProtocolError
from qos.xml_text import CLIENT, attribute, local, render, render_iq, text

__all__ = [
    "OVERHEAD_BYTES",
    "REQUEST_TAGS",
    "Keep",
    "bad_request",
    "check_msg_id",
    "condition_of",
    "embedded",
    "error_text",
    "parse_reply",
    "parse_request",
    "render_answer",
    "render_error",
    "render_request",
    "request_element",
    "request_of",
]


#: An iq of ours adds less than this to its payload and the two JIDs.
OVERHEAD_BYTES = 512

#: The most digits of the credit in a `received`; no receiver holds so many messages.
_CREDIT_DIGITS_MAX = 9

_STANZAS = "urn:ietf:params:xml:ns:xmpp-stanzas"
_SENDER = f"{{{MARKS_NAMESPACE}}}sender"
_HOLD = f"{{{MARKS_NAMESPACE}}}hold"
_CREDIT = f"{{{MARKS_NAMESPACE}}}credit"
_REJECTED = f"{{{MARKS_NAMESPACE}}}rejected"
_MARKS = f" xmlns:q='{MARKS_NAMESPACE}' q:"
_REQUESTS = frozenset({"acknowledged", "assured", "deliver"})
REQUEST_TAGS = frozenset(
    f"{{{namespace}}}{name}" for namespace in NAMESPACES for name in _REQUESTS
)

#: The addresses of an iq count, not those of the message in it.
_ADDRESSES = frozenset({"to", "from"})

_TEXT = "a string that XML can carry"

#: Takes a payload, and the element that was read.
Keep: TypeAlias = Callable[[str, ET.Element], object]

AnyRequest = TypeVar("AnyRequest", bound=Request)


# -- reading ---------------------------------------------------------------


def request_element(iq: ET.Element) -> ET.Element | None:
    """The QoS request in an iq of type set, or None."""
    for child in iq:
        if child.tag in REQUEST_TAGS:
            return child
    return None


def parse_request(
    iq: ET.Element,
    element: ET.Element,
    keep: Keep | None = None,
    *,
    without_message: bool = False,
) -> Request:
    """Read a request.

    Args:
        iq: of type set, with from, to and id.
        element: the result of request_element.
        keep: called with the payload and the message of which it is the text.
        without_message: do not read the message: its sender is not trusted.

    Raises:
        RemoteProtocolError: it is malformed: bad-request/modify.
    """
    iq_id = iq.get("id", "")
    if not iq_id:
        raise bad_request("an iq without an id")
    return request_of(
        element,
        Request,
        keep,
        without_message=without_message,
        mark=element.get(_SENDER, ""),
        hold=element.get(_HOLD, ""),
        iq_id=iq_id,
        source=iq.get("from", ""),
        to=iq.get("to", ""),
    )


def request_of(
    element: ET.Element,
    make: Callable[..., AnyRequest],
    keep: Keep | None,
    *,
    without_message: bool = False,
    mark: str,
    hold: str,
    **where: str,
) -> AnyRequest:
    """Read the element of a request.

    Args:
        element: a request.
        make: the class of the result, or a function that makes it of the same values.
        keep: as for parse_request.
        without_message: as for parse_request.
        mark: the mark of the sender's store that came with it.
        hold: the token that came with it.
        where: iq_id, source and to of the request.

    Raises:
        RemoteProtocolError: it is malformed: bad-request/modify.
    """
    namespace, _, kind = element.tag[1:].partition("}")
    msg_id = payload = ""
    if kind != "acknowledged":
        msg_id = element.get("msgId", "")
        if not msg_id:
            raise bad_request("msgId is missing or empty")
    if kind != "deliver":
        hold = ""
    if max(len(msg_id), len(mark), len(hold)) > ID_CHARS_MAX:
        raise _too_long(msgId=msg_id, sender=mark, hold=hold)
    if kind != "deliver" and not without_message:
        message = _message_in(element)
        payload = embedded(message)
        if keep is not None:
            keep(payload, message)
    return make(
        kind=kind,
        namespace=namespace,
        msg_id=msg_id,
        payload=payload,
        size=len(payload.encode()),
        mark=mark,
        hold=hold,
        **where,
    )


def _too_long(**ids: str) -> RemoteProtocolError:
    name = max(ids, key=lambda attribute: len(ids[attribute]))
    return bad_request(f"{name} is longer than {ID_CHARS_MAX} characters")


def _message_in(element: ET.Element) -> ET.Element:
    messages = [child for child in element if local(child) == "message"]
    if len(messages) != 1:
        raise bad_request(f"{len(messages)} message elements instead of one")
    if request_element(messages[0]) is not None:
        raise bad_request("a request inside the message of a request")
    return messages[0]


def bad_request(problem: str) -> RemoteProtocolError:
    """The error for a malformed request of a peer."""
    return RemoteProtocolError(problem, condition="bad-request", type="modify")


def embedded(message: ET.Element) -> str:
    """A message as it is stored and embedded: jabber:client, without to and from.

    Its own namespace, whichever it is, means jabber:client. (A component stream has its
    own namespace, and some peers let the message inherit that of the request.)

    Raises:
        LocalProtocolError: XML cannot carry it.
    """
    try:
        return render(message, namespace=CLIENT, without=_ADDRESSES)
    except ValueError as error:
        raise LocalProtocolError(f"the message cannot be sent: {error}") from error


def parse_reply(iq: ET.Element) -> Reply:
    """Read an iq of type result or error."""
    received = hold = credit = namespace = error = error_message = by = None
    rejected = redelivered = False
    error_type = "cancel"
    for child in iq:
        name = local(child)
        if name == "received":
            received = child.get("msgId")
            hold, credit = child.get(_HOLD), credit_of(child.get(_CREDIT))
            namespace = child.tag[1:].partition("}")[0]
        elif child.tag == _HOLD:
            hold = child.text or ""
        elif name == "error" and iq.get("type") == "error":
            error_type = child.get("type", "cancel")
            error = condition_of(child)
            error_message, by = error_text(child), child.get("by")
            for mark in child:
                if mark.tag in {_HOLD, _REJECTED}:
                    hold = mark.text or ""
                    rejected = mark.tag == _REJECTED
                    redelivered = mark.get("redelivered") in {"true", "1"}
    if iq.get("type") == "error" and error is None:
        error = "undefined-condition"
    if len(hold or "") > ID_CHARS_MAX:
        # We would have to repeat them: not a valid answer.
        received = hold = None
    return Reply(
        iq_id=iq.get("id", ""),
        source=iq.get("from", ""),
        error=error,
        error_type=error_type,
        received=received,
        hold=hold,
        namespace=namespace,
        rejected=rejected,
        redelivered=redelivered,
        text=error_message,
        by=by and one_line(by),
        credit=credit,
    )


def credit_of(value: str | None) -> int | None:
    """Return the credit in a `received`; None if there is none or it is no number."""
    if value is None or not 0 < len(value) <= _CREDIT_DIGITS_MAX:
        return None
    return int(value) if value.isascii() and value.isdecimal() else None


def error_text(error: ET.Element) -> str | None:
    """The human-readable text of a stanza error, as one line, or None."""
    return one_line(error.findtext(f"{{{_STANZAS}}}text", "")) or None


def condition_of(error: ET.Element) -> str:
    """The condition of a stanza error (RFC 6120 §8.3.3)."""
    for child in error:
        name = local(child)
        if child.tag == f"{{{_STANZAS}}}{name}" and name != "text":
            return name
    return "undefined-condition"


# -- writing ---------------------------------------------------------------


def check_msg_id(msg_id: str) -> None:
    """Check an id that a user has chosen for a message.

    Raises:
        InvalidArgument: no peer would accept it, or XML cannot carry it.
    """
    arguments.text("msg_id", msg_id)
    if not 0 < len(msg_id) <= ID_CHARS_MAX:
        expected = f"a string of 1 to {ID_CHARS_MAX} characters"
        raise InvalidArgument("msg_id", msg_id, expected)
    try:
        attribute(msg_id)
    except ValueError as error:
        raise InvalidArgument("msg_id", msg_id, _TEXT, why=str(error)) from error


def render_request(transmit: Transmit, sender: str = "", *, store_id: str) -> str:
    """The iq of a step; the same record and route give the same bytes.

    Args:
        transmit: the step.
        sender: the from, if the stream needs one (as a component's does).
        store_id: the mark of our store.
    """
    record, route = transmit.record, transmit.route
    mark = f"{_MARKS}sender={attribute(store_id)}"
    if transmit.step == "deliver":
        iq_id = record.deliver_id
        hold = f" q:hold={attribute(record.hold)}" if record.hold else ""
        content = (
            f"<deliver xmlns='{route.namespace}' msgId={attribute(record.msg_id)}"
            f"{mark}{hold}/>"
        )
    elif record.level is Level.ASSURED:
        iq_id = record.offer_id
        content = (
            f"<assured xmlns='{route.namespace}' msgId={attribute(record.msg_id)}"
            f"{mark}>{record.payload}</assured>"
        )
    else:
        iq_id = record.offer_id
        content = (
            f"<acknowledged xmlns='{route.namespace}'{mark}>"
            f"{record.payload}</acknowledged>"
        )
    return render_iq("set", iq_id, content, to=route.jid, sender=sender)


def render_answer(request: Request, answer: Answer, *, sender: str = "") -> str:
    """The answer to a request."""
    kind, content = "result", ""
    if answer.kind == "received":
        hold = ""
        if answer.hold:
            hold = f"{_MARKS}hold={attribute(answer.hold)}"
            if answer.credit is not None:
                hold += f" q:credit='{answer.credit}'"
        content = f"<received msgId={attribute(request.msg_id)}{hold}/>"
    elif answer.hold:
        again = " redelivered='true'" if answer.redelivered else ""
        name = "rejected" if answer.kind == "rejected" else "hold"
        token = text(answer.hold)
        content = f"<{name} xmlns='{MARKS_NAMESPACE}'{again}>{token}</{name}>"
    if answer.kind in {"error", "rejected"}:
        content = _error(answer.condition, answer.error_type, answer.text, content)
        kind = "error"
    return render_iq(kind, request.iq_id, content, to=request.source, sender=sender)


def render_error(iq: ET.Element, error: RemoteProtocolError, *, sender: str) -> str:
    """The answer to a request that could not be read; repeats nothing of it."""
    content = _error(error.condition, error.type)
    return render_iq(
        "error", iq.get("id", ""), content, to=iq.get("from", ""), sender=sender
    )


def _error(condition: str, error_type: str, message: str = "", mark: str = "") -> str:
    if message:
        message = f"<text xmlns='{_STANZAS}'>{text(message)}</text>"
    return (
        f"<error type='{error_type}'><{condition} xmlns='{_STANZAS}'/>"
        f"{message}{mark}</error>"
    )
