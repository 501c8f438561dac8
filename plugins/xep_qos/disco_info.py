"""Reads disco#info (XEP-0030), with its forms of extended information (XEP-0128)."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from qos.core.capabilities import DiscoForm, DiscoInfo

__all__ = ["QUERY", "read_info"]

#: The content of a request.
QUERY = "<query xmlns='http://jabber.org/protocol/disco#info'/>"

_INFO = "{http://jabber.org/protocol/disco#info}"
_DATA = "{jabber:x:data}"
_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
_FORM_TYPE = "FORM_TYPE"


def read_info(xml: ET.Element) -> DiscoInfo:
    """The information in the result of a request; empty: it has none."""
    query = xml.find(f"{_INFO}query")
    if query is None:
        return DiscoInfo((), ())
    lang = query.get(_LANG) or xml.get(_LANG) or ""
    return DiscoInfo(
        tuple(
            (
                identity.get("category", ""),
                identity.get("type", ""),
                identity.get(_LANG, lang),
                identity.get("name", ""),
            )
            for identity in query.iterfind(f"{_INFO}identity")
        ),
        tuple(feature.get("var", "") for feature in query.iterfind(f"{_INFO}feature")),
        tuple(_read_form(form) for form in query.iterfind(f"{_DATA}x")),
    )


def _read_form(form: ET.Element) -> DiscoForm:
    types: tuple[str, ...] = ()
    hidden = False
    fields = []
    for field in form.iterfind(f"{_DATA}field"):
        values = tuple(value.text or "" for value in field.iterfind(f"{_DATA}value"))
        if field.get("var") == _FORM_TYPE:
            types, hidden = types + values, field.get("type") == "hidden"
        else:
            fields.append((field.get("var", ""), values))
    return DiscoForm(types, hidden, tuple(fields))
