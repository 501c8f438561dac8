"""Headers about a body, as its publisher gives them: media type, encoding, language, links.

They come back to whoever takes the message. A value of another form is refused when it
comes, and left out of an answer: a client that searches an answer for its links could take
it for one, and send its password there.
"""

from __future__ import annotations

import re

__all__ = [
    "CONTENT_TYPE_MAX",
    "KEPT",
    "is_header_value",
    "is_media_type",
    "why_no_header",
]

#: The characters of a header that is kept: it stays in memory with the item.
CONTENT_TYPE_MAX = 1024

#: The headers that are kept, and the properties that they become.
KEPT = {
    "content-type": "http_content$type",
    "content-encoding": "http_content$encoding",
    "content-language": "http_content$language",
    "link": "http_link",
}
_NAMES = {key: name for name, key in KEPT.items()}

_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")

# RFC 9110 §5.6 and §8.3.1. No text can be matched in two ways: it may be hostile.
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - of HTTP
_QUOTED = r'"(?:[\t\x20\x21\x23-\x5b\x5d-\x7e]|\\[\t\x20-\x7e])*"'
_PARAMETER = rf"{_TOKEN}=(?:{_TOKEN}|{_QUOTED})[ \t]*"
_MEDIA_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}[ \t]*(?:;[ \t]*(?:{_PARAMETER})?)*")

#: RFC 5646 §2.1, as far as all its tags have it in common.
_LANGUAGE = r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*"


def _list(element: str) -> re.Pattern[str]:
    return re.compile(rf"{element}(?:[ \t]*,[ \t]*{element})*")


#: The form of each header that has one, and its name with an example.
_FORMS = {
    "content-type": (_MEDIA_TYPE, "a media type is expected, such as text/plain"),
    "content-encoding": (_list(_TOKEN), "encodings are expected, such as gzip"),
    "content-language": (_list(_LANGUAGE), "language tags are expected, such as de"),
}


def is_header_value(text: str) -> bool:
    """Whether a text can be the value of a header, or an AMQP symbol: printable ASCII."""
    return _VALUE.fullmatch(text) is not None


def is_media_type(text: str) -> bool:
    """Whether a text is a media type (RFC 9110 §8.3.1), maybe with parameters."""
    return not why_no_header(KEPT["content-type"], text)


def why_no_header(key: str, value: object) -> str:
    """Why the value of a property cannot come back as a header; '': it can.

    Args:
        key: the name of the property; one that is not among those of KEPT can have any
            value.
        value: of the property. One that is no text is not shown as a header.
    """
    name = _NAMES.get(key)
    if name is None or not isinstance(value, str):
        return ""
    if len(value) > CONTENT_TYPE_MAX or not is_header_value(value):
        return f"{name}: at most {CONTENT_TYPE_MAX} characters of ASCII"
    form, expected = _FORMS.get(name, (_VALUE, ""))
    return "" if form.fullmatch(value) else f"{name}: {expected}, not {value[:40]!r}"
