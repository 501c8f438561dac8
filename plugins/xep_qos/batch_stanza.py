"""What stands in a batch: requests and answers, both ways, as pure functions.

A request in a batch is that of the text, and an answer in one is what the iq that
answers it would hold: both are read and written by `xep_qos.stanza`, put into a batch
and taken out of it here. The rules are in BATCH.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from xml.etree import ElementTree as ET

from qos.core.batch import BATCH_NAMESPACE, ELEMENTS_MAX
from qos.core.model import ID_CHARS_MAX, MARKS_NAMESPACE
from qos.errors import RemoteProtocolError
from qos.xml import attribute
from xep_qos import stanza

__all__ = [
    "batch_in",
    "parse_answers",
    "parse_batch",
    "render_answer",
    "render_answers",
    "render_batch",
]

_BATCH = f"{{{BATCH_NAMESPACE}}}batch"
_ID = f"{{{BATCH_NAMESPACE}}}id"
_SENDER = f"{{{MARKS_NAMESPACE}}}sender"
_ANSWERS = {
    f"{{{BATCH_NAMESPACE}}}result": "result",
    f"{{{BATCH_NAMESPACE}}}error": "error",
}
_IQ_END = "</iq>"


# -- what comes in ---------------------------------------------------------


def batch_in(iq: ET.Element) -> ET.Element | None:
    """The batch in an iq, or None."""
    return iq.find(_BATCH)


def parse_batch(iq: ET.Element, batch: ET.Element) -> list[ET.Element]:
    """The requests in a batch, each as the iq that it would be alone.

    Raises:
        RemoteProtocolError: it is no batch: bad-request/modify.
    """
    if not iq.get("id"):
        raise _bad_request("an iq without an id")
    if not 0 < len(batch) <= ELEMENTS_MAX:
        raise _bad_request(f"a batch of {len(batch)}, not 1 to {ELEMENTS_MAX}")
    requests = [_alone(iq, element) for element in batch]
    if len({request.get("id") for request in requests}) < len(requests):
        raise _bad_request("an id that comes twice in a batch")
    names = [
        (element.tag, element.get("msgId"), element.get(_SENDER))
        for element in batch
        if element.get("msgId")
    ]
    if len(set(names)) < len(names):
        raise _bad_request("a msgId that comes twice in a batch")
    return requests


def _alone(iq: ET.Element, element: ET.Element) -> ET.Element:
    given = {name: iq.get(name, "") for name in ("from", "to")}
    alone = ET.Element(iq.tag, given, type="set", id=element.get(_ID, ""))
    alone.append(element)
    if stanza.request_element(alone) is None:
        raise _bad_request("something else than a request in a batch")
    if not 0 < len(element.get(_ID, "")) <= ID_CHARS_MAX:
        raise _bad_request(f"an id in a batch has 1 to {ID_CHARS_MAX} characters")
    return alone


def _bad_request(problem: str) -> RemoteProtocolError:
    return RemoteProtocolError(problem, condition="bad-request", type="modify")


def parse_answers(iq: ET.Element) -> Iterator[ET.Element]:
    """The answers in the result for a batch, each as the iq that it would be alone.

    What is no answer is left out: it will be as if nothing had come.
    """
    batch = batch_in(iq)
    for answer in batch if batch is not None else ():
        kind = _ANSWERS.get(answer.tag)
        if kind is not None:
            alone = ET.Element(iq.tag, type=kind, id=answer.get("id", ""))
            alone.set("from", iq.get("from", ""))
            alone.extend(answer)
            yield alone


# -- what goes out ---------------------------------------------------------


def render_batch(
    iq_id: str, to: str, sender: str, requests: Iterable[tuple[str, str]]
) -> str:
    """The iq of a batch.

    Args:
        iq_id: of the batch.
        to: the peer.
        sender: a from, where the stream wants one (a component's).
        requests: of each the id and the iq that it would be alone.
    """
    elements = (_with_id(iq_id, _content(text)) for iq_id, text in requests)
    prefix = f" xmlns:b='{BATCH_NAMESPACE}'"
    return _iq("set", iq_id, to, sender, prefix, elements)


def render_answer(kind: str, iq_id: str, text: str) -> str:
    """An answer as it stands in the result for a batch.

    Args:
        kind: `result` or `error`.
        iq_id: of the request.
        text: the iq that it would be alone.
    """
    head = f"<{kind} id={attribute(iq_id)}"
    content = _content(text)
    return f"{head}>{content}</{kind}>" if content else f"{head}/>"


def render_answers(iq_id: str, to: str, sender: str, answers: Iterable[str]) -> str:
    """The result for a batch, with what render_answer gave."""
    return _iq("result", iq_id, to, sender, "", answers)


def _iq(
    kind: str, iq_id: str, to: str, sender: str, prefix: str, content: Iterable[str]
) -> str:
    source = f" from={attribute(sender)}" if sender else ""
    target = f" to={attribute(to)}" if to else ""
    return (
        f"<iq type='{kind}' id={attribute(iq_id)}{target}{source}>"
        f"<batch xmlns='{BATCH_NAMESPACE}'{prefix}>{''.join(content)}</batch></iq>"
    )


def _content(iq: str) -> str:
    """What stands in an iq of ours: no attribute of it holds a `>`."""
    return iq[iq.index(">") + 1 : -len(_IQ_END)] if iq.endswith(_IQ_END) else ""


def _with_id(iq_id: str, element: str) -> str:
    name, _, rest = element.partition(" ")
    return f"{name} b:id={attribute(iq_id)} {rest}"
