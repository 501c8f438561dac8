"""Helpers to read and write requests, answers and events.

Numbers, times and payloads, as text; and the refusals that a reader raises. No I/O, no
clock, nothing of slixmpp.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from functools import cache, lru_cache
from xml.etree import ElementTree as ET

from qos.core.queue.requests import Refusal
from qos.steps import Steps, at_once
from qos.xml_text import attribute, render, rendering
from xep_0254.namespaces import EXTENSIONS, PUBSUB

__all__ = [
    "BIND_Q",
    "BOOLEANS",
    "attributes",
    "bad_request",
    "decimal",
    "extended",
    "in_pubsub",
    "legal",
    "moment",
    "namespace",
    "payload_text",
    "rendering_payload",
    "seconds",
    "timestamp",
    "unsupported",
    "whole",
]

#: Binds the prefix of our extensions, as attributes are written.
BIND_Q = f" xmlns:q='{EXTENSIONS}'"

#: XML Schema part 2 §3.2.2.1.
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}

#: Longer numbers are an attack: int() and float() take a long time for them.
_NUMBER_CHARS_MAX = 40
_DECIMAL = re.compile(r"\+?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

#: No service has published in other years. At either end of its calendar, Python cannot
#: convert a time to every time zone, so that the reader of such an item would fail.
_YEARS = range(1970, 9999)

#: The elements whose attributes are sorted in one step.
_STEP_ELEMENTS = 2048

#: The most characters of a peer's text that are put into the text of an error.
_LEGAL_CHARS_MAX = 1000


# -- names -----------------------------------------------------------------


def namespace(element: ET.Element) -> str:
    """The namespace of an element, or ''."""
    return element.tag[1:].partition("}")[0] if element.tag[:1] == "{" else ""


def extended(name: str) -> str:
    """The name of an attribute or an element of our extensions."""
    return f"{{{EXTENSIONS}}}{name}"


def attributes(**values: str | None) -> str:
    """Attributes as they are written, each with a space before it.

    Args:
        **values: None: left out. `_` in a name is written `-`; a name that begins with
            `q_` is one of our extensions, whose prefix `q` must be bound.
    """
    written = ""
    for name, value in values.items():
        if value is not None:
            written += f" {_written(name)}={attribute(value)}"
    return written


def in_pubsub(content: str, xmlns: str = PUBSUB) -> str:
    """The content, in the element of all requests and answers (XEP-0060)."""
    return f"<pubsub xmlns='{xmlns}'>{content}</pubsub>"


@cache
def _written(name: str) -> str:
    # Only names in our own code come here, so there are few.
    if name.startswith("q_"):
        return f"q:{name[2:].replace('_', '-')}"
    return name.replace("_", "-")


# -- values ----------------------------------------------------------------


def decimal(value: str | None) -> float | None:
    """A finite number that is not negative; None: not such a number."""
    value = (value or "").strip()
    if len(value) > _NUMBER_CHARS_MAX or not _DECIMAL.fullmatch(value):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def whole(value: str | None) -> int | None:
    """A whole number that is not negative; None: not such a number."""
    value = (value or "").strip()
    # str.isdigit() also accepts digits that int() does not.
    if len(value) > _NUMBER_CHARS_MAX or not (value.isascii() and value.isdigit()):
        return None
    return int(value)


def seconds(value: float) -> str:
    """A length of time, to the microsecond."""
    return f"{value:.6f}".rstrip("0").rstrip(".")


@lru_cache(maxsize=64)  # the items of a batch have one
def timestamp(at: float) -> str:
    """A time as XEP-0082 writes it, to the microsecond."""
    text = datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")


def moment(value: str | None) -> float | None:
    """A time in this form, from 1970 to 9998; None: not such a time."""
    try:
        instant = datetime.fromisoformat((value or "").strip())
    except ValueError:
        return None
    # Without an offset, the time zone is unknown.
    return instant.timestamp() if instant.tzinfo and instant.year in _YEARS else None


def legal(value: str) -> str:
    """A text for people, shortened and cleaned for XML."""
    value = value[:_LEGAL_CHARS_MAX]
    try:
        attribute(value)
    except ValueError:
        return ascii(value)
    return value


def payload_text(element: ET.Element) -> str:
    """A payload as text, at once; see `rendering_payload`."""
    return at_once(rendering_payload(element))


def rendering_payload(element: ET.Element) -> Steps[str]:
    """A payload as text that can stand anywhere, the same for equal infosets; in steps.

    Servers do not keep the order of attributes, and a repeat must be recognised. So the
    element's own attributes are sorted.

    Raises:
        ValueError: XML cannot carry one of the characters.
    """
    for number, node in enumerate(element.iter()):
        if number % _STEP_ELEMENTS == _STEP_ELEMENTS - 1:
            yield
        if len(node.attrib) > 1:
            ordered = sorted(node.attrib.items())
            node.attrib.clear()
            node.attrib.update(ordered)
    text = (yield from rendering(element)) if len(element) else render(element)
    if not namespace(element):
        # render() leaves the xmlns out at the top, where no element is around it.
        end = 1 + len(element.tag)
        text = f"{text[:end]} xmlns=''{text[end:]}"
    return text


# -- refusals --------------------------------------------------------------


def bad_request(text: str, pubsub: str = "") -> Refusal:
    """The request is malformed."""
    return Refusal(text, condition="bad-request", type="modify", pubsub=pubsub)


def unsupported(feature: str) -> Refusal:
    """The request is for a part of XEP-0060 that is not offered."""
    return Refusal(
        f"{feature} is not offered here",
        condition="feature-not-implemented",
        type="cancel",
        pubsub="unsupported",
        feature=feature,
    )
