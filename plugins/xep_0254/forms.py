"""Data forms (XEP-0004), written and read.

This module knows how the tables of `qos.core.queue.node_options` look as forms. It does
not check values: the tables do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree as ET

from qos.core.queue.node_options import QUEUE_REQUESTS, Field
from qos.core.queue.requests import Refusal
from qos.xml_text import attribute, text
from xep_0254.elements import bad_request, seconds
from xep_0254.namespaces import DATA_FORM, FORM_VALIDATION, SUBSCRIBE_OPTIONS

__all__ = ["Form", "fields_of", "parse_form", "render_form"]

_FORM_TYPE = "FORM_TYPE"


@dataclass(frozen=True, slots=True)
class Form:
    """A form as it was sent.

    Attributes:
        type: `form`, `submit`, `result` or `cancel`, or any other text that was there.
        form_type: its FORM_TYPE, or ''.
        values: by the names of the fields, without FORM_TYPE.
    """

    type: str
    form_type: str
    values: dict[str, tuple[str, ...]]


def parse_form(x: ET.Element) -> Form:
    """Read a form; fields without a name are only for people, and are left out."""
    values: dict[str, list[str]] = {}
    for field in x.iterfind(f"{{{DATA_FORM}}}field"):
        var = field.get("var")
        if var:
            elements = field.iterfind(f"{{{DATA_FORM}}}value")
            # Several fields with one name: all their values. Not by adding tuples: with
            # thousands of fields each would be copied again for each.
            texts = (element.text or "" for element in elements)
            values.setdefault(var, []).extend(texts)
    form_type = " ".join(values.pop(_FORM_TYPE, ())).strip()
    fields = {var: tuple(texts) for var, texts in values.items()}
    return Form(type=x.get("type", ""), form_type=form_type, values=fields)


def fields_of(
    form: Form, *, definitions: Sequence[Field], form_type: str
) -> dict[str, str]:
    """The values that a form sets, by the names of the fields; unchecked.

    Standard fields that we do not have are left out, because clients send back whole
    forms.

    Args:
        form: as it was sent.
        definitions: the known fields.
        form_type: the FORM_TYPE that the form must have.

    Raises:
        Refusal: the form has another FORM_TYPE, an unknown field of ours, or more than
            one value for a field.
    """
    if form.form_type not in ("", form_type):
        raise _invalid(f"the form is for {form.form_type!r}, not for {form_type!r}")
    names = {field.var for field in definitions}
    fields: dict[str, str] = {}
    for var, values in form.values.items():
        name = _name(var, form_type)
        if name not in names:
            # XEP-0254 §2.1 requires only `queue_requests` of the options.
            if form_type == SUBSCRIBE_OPTIONS or name.startswith("pubsub#"):
                continue
            raise _invalid(f"there is no field {name!r}")
        if len(values) > 1 or name in fields:
            raise _invalid(f"more than one value for {name}")
        fields[name] = values[0] if values else ""
    return fields


def _name(var: str, form_type: str) -> str:
    """The name of a field.

    XEP-0254 omits the prefix in its text, but not in its listings.
    """
    bare = QUEUE_REQUESTS.partition("#")[2]
    return QUEUE_REQUESTS if form_type == SUBSCRIBE_OPTIONS and var == bare else var


def _invalid(problem: str) -> Refusal:
    return bad_request(problem, "invalid-options")


def render_form(
    kind: Literal["form", "submit", "result"],
    form_type: str,
    fields: Sequence[Field],
    values: Mapping[str, str],
) -> str:
    """Write a form.

    Args:
        kind: `form` has every field, to be filled in, with its default if it has no
            value; the others have only the fields with a value.
        form_type: its FORM_TYPE.
        fields: the known fields, in this order. Values for other fields come after
            them, as text.
        values: by the names of the fields.

    Raises:
        ValueError: XML cannot carry one of the values.
    """
    output = [
        f"<x xmlns='{DATA_FORM}' type='{kind}'>"
        f"<field var='{_FORM_TYPE}' type='hidden'>"
        f"<value>{text(form_type)}</value></field>"
    ]
    for field in fields:
        value = values.get(field.var)
        if value is None and kind == "form":
            value = field.default
        elif value is None:
            continue
        output.append(_field(kind, field, value))
    names = {field.var for field in fields}
    for var, value in values.items():
        if var not in names:
            output.append(f"<field var={attribute(var)}>{_value(value)}</field>")
    output.append("</x>")
    return "".join(output)


def _field(kind: str, field: Field, value: str | None) -> str:
    var = attribute(field.var)
    if kind == "submit":
        return f"<field var={var}>{_value(value)}</field>"
    type_ = "text-single"
    content = ""
    if field.boolean:
        type_ = "boolean"
    elif field.choices:
        type_ = "list-single"
    if kind == "form":
        content = "".join(
            f"<option label={attribute(choice)}>{_value(choice)}</option>"
            for choice in field.choices
        )
        content += _validation(field)
        if field.default is None:
            content += "<required/>"
    head = f"<field var={var} type='{type_}' label={attribute(field.label)}"
    return f"{head}>{content}{_value(value)}</field>"


def _value(value: str | None) -> str:
    return "" if value is None else f"<value>{text(value)}</value>"


def _validation(field: Field) -> str:
    """The permitted values of a number (XEP-0122)."""
    if field.least is None:
        return ""
    datatype = "xs:integer" if field.whole else "xs:decimal"
    most = "" if math.isinf(field.most) else f" max='{seconds(field.most)}'"
    return (
        f"<validate xmlns='{FORM_VALIDATION}' datatype='{datatype}'>"
        f"<range min='{seconds(field.least)}'{most}/></validate>"
    )
