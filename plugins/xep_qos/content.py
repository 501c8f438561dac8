"""The content of a message that is sent: a text, a value as JSON (XEP-0335), XML, or a whole message."""

from __future__ import annotations

from typing import NamedTuple, TypedDict
from xml.etree import ElementTree as ET

from slixmpp import JID
from slixmpp.basexmpp import BaseXMPP
from slixmpp.stanza import Message
from slixmpp.xmlstream.stanzabase import StanzaBase

from qos import arguments
from qos.core.contents import Json, json_payload, read_json
from qos.core.message.model import LevelOrWord
from qos.core.strings import bare
from qos.errors import InvalidArgument, RemoteProtocolError
from qos.jids import jid_of
from qos.xml_text import CLIENT, local, text
from xep_qos.stanza import embedded

__all__ = [
    "Addressed",
    "Json",
    "SendOptions",
    "addressed",
    "json_of",
    "message_of_xml",
    "message_with_body",
    "message_with_json",
]

_JSON = "urn:xmpp:json:0"
_TEXT = "a string that XML can carry"


class SendOptions(TypedDict, total=False):
    """The options of `send`, for type checkers and editors; see `XEP_QOS.submit`."""

    payload: str | None
    json: Json
    sender: str | JID | None
    level: LevelOrWord
    deadline_s: float | None
    ordered: bool | None
    msg_id: str | None


class Addressed(NamedTuple):
    """A message to be sent.

    Attributes:
        to: its receiver, a JID.
        sender: of a component: the JID that it is from; '': the usual one.
        payload: as it is stored and embedded.
    """

    to: str | JID
    sender: str
    payload: str


def addressed(
    xmpp: BaseXMPP,
    to: str | JID | Message,
    body: str | None,
    payload: str | None,
    value: Json,
    sender: str | JID | None,
) -> Addressed:
    """The message that these arguments of `XEP_QOS.send` describe.

    Raises:
        InvalidArgument: one of them is wrong, they leave nothing to be sent, or one
            would overwrite another.
    """
    count = (body is not None) + (payload is not None) + (value is not None)
    if isinstance(to, Message):
        if count or sender is not None:
            name = next(iter(_given(body, payload, value)), "sender")
            raise InvalidArgument(name, str, "left out where `to` is a whole message")
        return _whole(xmpp, to)
    if not count:
        jid_of("to", to)  # this is wrong first, if it is
        expected = "a text, unless there is a payload or json: nothing would be sent"
        raise InvalidArgument("body", None, expected)
    if count > 1:
        first, second, *_ = _given(body, payload, value)
        raise InvalidArgument(first, str, f"left out where there is a {second}")
    if sender is not None and not xmpp.is_component:
        expected = "left out: only a component sends for other JIDs"
        raise InvalidArgument("sender", str(sender), expected)
    if payload is not None:
        content = message_of_xml(payload, jid_of("to", to))
    elif body is not None:
        content = message_with_body(body)
    else:
        content = message_with_json(value)
    return Addressed(to, "" if sender is None else jid_of("sender", sender), content)


def json_of(message: StanzaBase) -> Json:
    """The value that a message has as JSON (XEP-0335).

    Raises:
        RemoteProtocolError: it has none, or what it has is no JSON. A consumer that lets
            this pass rejects the message.
    """
    element = message.xml.find(f"{{{_JSON}}}json")
    try:
        if element is None:
            raise ValueError("there is no such element")
        return read_json(element.text or "")
    except ValueError as error:
        text_of_error = f"the message has no JSON (XEP-0335): {error}"
        raise RemoteProtocolError(
            text_of_error, condition="bad-request", type="modify"
        ) from error


def _given(*contents: object) -> list[str]:
    names = zip(("body", "payload", "json"), contents, strict=True)
    return [name for name, content in names if content is not None]


def _whole(xmpp: BaseXMPP, message: Message) -> Addressed:
    to, sender = message.xml.get("to"), message.xml.get("from", "")
    if not to:
        raise InvalidArgument("to", Message, "a JID, or a Message that has a `to`")
    if xmpp.is_component:
        return Addressed(to, sender, embedded(message.xml))
    own = xmpp.boundjid.bare or xmpp.requested_jid.bare
    if sender and bare(sender) != own:
        raise InvalidArgument("to", Message, f"a Message from {own}, or without `from`")
    return Addressed(to, "", embedded(message.xml))


def message_with_body(body: object) -> str:
    """The payload of a text message.

    Raises:
        InvalidArgument: XML cannot carry it.
    """
    body_text = arguments.text("body", body, private=True)
    try:
        return f"<message xmlns='{CLIENT}'><body>{text(body_text)}</body></message>"
    except ValueError as error:
        raise InvalidArgument("body", str, _TEXT, why=str(error)) from error


def message_with_json(value: Json) -> str:
    """The payload of a message with a value as JSON (XEP-0335).

    Raises:
        InvalidArgument: JSON cannot carry it.
    """
    return f"<message xmlns='{CLIENT}'>{json_payload(value)}</message>"


def message_of_xml(payload: object, to: str) -> str:
    """The payload of a message given as XML: a message, or the content of one.

    Raises:
        InvalidArgument: it is not well-formed, or is from or to somebody else.
    """
    xml = arguments.text("payload", payload, private=True)
    try:
        root = ET.fromstring(xml)  # noqa: S314 - expat expands no external entity
    except (ET.ParseError, UnicodeEncodeError) as error:
        expected = "one element of well-formed XML"
        raise InvalidArgument("payload", str, expected, why=str(error)) from error
    if local(root) != "message":
        for element in root.iter():
            if "}" not in element.tag:
                element.tag = f"{{{CLIENT}}}{element.tag}"
        message = ET.Element(f"{{{CLIENT}}}message")
        message.append(root)
        root = message
    if root.get("from") is not None:
        expected = "a message without `from`; a component says it by `sender`"
        raise InvalidArgument("payload", str, expected)
    if root.get("to") not in {None, to}:
        expected = f"a message without `to`, or to {to}"
        raise InvalidArgument("payload", str, expected)
    return embedded(root)
