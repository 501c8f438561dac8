"""Commands in XML (XEP-0050, XEP-0004): requests are read, replies and discovery written.

This module knows no sessions and no rights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from qos.core.queue.command_forms import Form, FormField, Table
from qos.core.queue.command_inputs import Values
from qos.core.queue.command_session import Reply, Session, bad
from qos.core.queue.command_table import COMMANDS as ENTRIES
from qos.core.queue.command_table import Command
from qos.xml_text import attribute, text
from xep_0254.elements import attributes, legal
from xep_0254.forms import parse_form
from xep_0254.namespaces import COMMANDS, DATA_FORM, DISCO_INFO, DISCO_ITEMS
from xep_0254.service_stanza import answer_to

__all__ = [
    "FIELDS_MAX",
    "FIELD_VALUES_MAX",
    "CommandRequest",
    "is_command",
    "read_command",
    "read_form",
    "render_command_info",
    "render_command_items",
    "render_reply",
]

#: The fields of a form that is read, and the elements in each of them. Ours have fewer;
#: clients may send notes and options back.
FIELDS_MAX = 100
FIELD_VALUES_MAX = 250

_COMMAND = f"{{{COMMANDS}}}command"
_FORM = f"{{{DATA_FORM}}}x"

#: Children of a request that say nothing (XEP-0050 §4.1).
_IGNORED = frozenset({f"{{{COMMANDS}}}actions", f"{{{COMMANDS}}}note"})


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A request as it was sent; its form is not read yet.

    Attributes:
        node: of the command.
        session_id: ''; that begins one.
        action: ''; that means `execute`.
    """

    node: str
    session_id: str
    action: str


def is_command(iq: ET.Element) -> bool:
    """Whether an iq executes a command (XEP-0050 §2.4), of whatever service."""
    return iq.get("type") == "set" and len(iq) == 1 and iq[0].tag == _COMMAND


def read_command(iq: ET.Element) -> CommandRequest:
    """Read an iq for which `is_command` is true, without its form."""
    element = iq[0]
    return CommandRequest(
        node=element.get("node", ""),
        session_id=element.get("sessionid", ""),
        action=element.get("action", ""),
    )


def read_form(iq: ET.Element) -> Values | None:
    """The values of the form in a command; None: it has none.

    A form of type `cancel` counts as `submit` (XEP-0050 §3.5.1).

    Raises:
        CommandRefusal: the payload is no form of such a type, or is too large.
    """
    payloads = [child for child in iq[0] if child.tag not in _IGNORED]
    if not payloads:
        return None
    x = payloads[0]
    if len(payloads) > 1 or x.tag != _FORM:
        raise bad("a command has one form (jabber:x:data) and no more", "bad-payload")
    if len(x) > FIELDS_MAX or any(len(field) > FIELD_VALUES_MAX for field in x):
        raise bad(
            f"a form has at most {FIELDS_MAX} fields, each with {FIELD_VALUES_MAX} values",
            "bad-payload",
        )
    if x.get("type") not in {"submit", "cancel"}:
        kind = x.get("type", "")[:20]
        raise bad(f"the form must have the type submit, not {kind!r}", "bad-payload")
    return parse_form(x).values


# -- replies ---------------------------------------------------------------


def render_reply(
    iq: ET.Element, session: Session, reply: Reply, *, sender: str = ""
) -> str:
    """The answer to a command (XEP-0050 §2.4).

    Args:
        iq: the request.
        session: that it belongs to.
        reply: what is said.
        sender: as for answer_to.
    """
    content = ""
    if reply.actions:
        default, *_ = reply.actions
        names = "".join(f"<{action}/>" for action in reply.actions)
        content += f"<actions execute='{default}'>{names}</actions>"
    if reply.note:
        content += f"<note type='info'>{text(legal(reply.note))}</note>"
    if isinstance(reply.content, Form):
        content += _form(reply.content, session.command)
    elif reply.content is not None:
        content += _table(reply.content)
    head = attributes(
        node=session.command.node, sessionid=session.session_id, status=reply.status
    )
    # In English, whatever the client prefers: better than no answer (XEP-0050 §3.7).
    command = f"<command xmlns='{COMMANDS}'{head} xml:lang='en'>{content}</command>"
    return answer_to(iq, "result", command, sender=sender)


def _form(form: Form, command: Command) -> str:
    kind = "result" if form.result else "form"
    instructions = ""
    if form.instructions:
        instructions = f"<instructions>{text(form.instructions)}</instructions>"
    fields = "".join(_field(field, result=form.result) for field in form.fields)
    return (
        f"<x xmlns='{DATA_FORM}' type='{kind}'><title>{text(form.title)}</title>"
        f"{instructions}<field var='FORM_TYPE' type='hidden'>"
        f"<value>{command.node}</value></field>{fields}</x>"
    )


def _field(field: FormField, *, result: bool) -> str:
    head = attributes(var=field.var, type=field.kind, label=field.label)
    options = "".join(
        f"<option label={attribute(label)}><value>{text(value)}</value></option>"
        for value, label in field.options
    )
    required = "<required/>" if field.required and not result else ""
    values = "".join(f"<value>{text(value)}</value>" for value in field.values)
    return f"<field{head}>{required}{values}{options}</field>"


def _table(table: Table) -> str:
    reported = "".join(
        f"<field{attributes(var=var, type='text-single', label=label)}/>"
        for var, label in table.columns
    )
    heads = [f"<field var={attribute(var)}><value>" for var, _ in table.columns]
    rows = "".join(
        "<item>"
        + "".join(
            f"{head}{text(cell)}</value></field>"
            for head, cell in zip(heads, row, strict=True)
        )
        + "</item>"
        for row in table.rows
    )
    # Profanity shows fields, and no tables.
    lines = "".join(f"<value>{text(line)}</value>" for line in table.lines)
    return (
        f"<x xmlns='{DATA_FORM}' type='result'><title>{text(table.title)}</title>"
        f"<field var='text' type='text-multi' label='As text'>{lines}</field>"
        f"<reported>{reported}</reported>{rows}</x>"
    )


# -- discovery -------------------------------------------------------------


def render_command_items(
    iq: ET.Element, commands: Sequence[Command], *, service: str, sender: str = ""
) -> str:
    """The list of commands (XEP-0050 §2.2).

    Args:
        iq: the request.
        commands: those that the requester can use.
        service: the JID of the service.
        sender: as for answer_to.
    """
    items = "".join(
        "<item"
        + attributes(jid=service, node=command.node, name=ENTRIES[command].title)
        + "/>"
        for command in commands
    )
    query = f"<query xmlns='{DISCO_ITEMS}' node='{COMMANDS}'>{items}</query>"
    return answer_to(iq, "result", query, sender=sender)


def render_command_info(
    iq: ET.Element, command: Command | None, *, sender: str = ""
) -> str:
    """What a command is, or (None) the list of them (XEP-0050 §2.2).

    Args:
        iq: the request.
        command: the command.
        sender: as for answer_to.
    """
    node = COMMANDS if command is None else command.node
    identity = attributes(
        category="automation",
        type="command-list" if command is None else "command-node",
        name="Commands" if command is None else ENTRIES[command].title,
    )
    features = (DISCO_INFO, DISCO_ITEMS) if command is None else (COMMANDS, DATA_FORM)
    listed = "".join(f"<feature var={attribute(feature)}/>" for feature in features)
    query = (
        f"<query xmlns='{DISCO_INFO}'{attributes(node=node)}><identity{identity}/>"
        f"{listed}</query>"
    )
    return answer_to(iq, "result", query, sender=sender)
