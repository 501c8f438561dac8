"""Batches by hand (plugins/xep_qos/BATCH.md), for raw peers: written and read."""

from collections.abc import Callable, Collection
from typing import Final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from raw_client import RawClient, local
from test_raw_peers import MARKS, QOS, STANZAS, RawPeer, answer, assured

BATCH: Final = "xmpp-qos:batch:0"
ID: Final = f"{{{BATCH}}}id"

#: What a peer that takes batches says of itself.
FEATURES: Final = (QOS, MARKS, BATCH)


def batch(*elements: str) -> str:
    """A batch with these elements."""
    return f"<batch xmlns='{BATCH}'>{''.join(elements)}</batch>"


def with_id(iq_id: str, element: str) -> str:
    """The element with this id."""
    name, _, rest = element.partition(" ")
    return f"{name} xmlns:b='{BATCH}' b:id={quoteattr(iq_id)} {rest}"


def offers(numbers: Collection[int], *, mark: str = "s") -> list[str]:
    """For each number n an `assured` with the id `in` and the msgId `mn`."""
    return [
        with_id(f"i{number}", assured(f"m{number}", mark=mark)) for number in numbers
    ]


def is_batch(xml: ET.Element) -> bool:
    """Match an iq with a batch of requests."""
    return local(xml) == "iq" and xml.get("type") == "set" and xml[0].tag == BATCH_TAG


BATCH_TAG: Final = f"{{{BATCH}}}batch"


def is_result(xml: ET.Element) -> bool:
    """Match the result for a batch."""
    return xml.get("type") == "result" and len(xml) == 1 and xml[0].tag == BATCH_TAG


def alone(iq_id: str) -> Callable[[ET.Element], bool]:
    """Match an iq of this id."""
    return lambda xml: local(xml) == "iq" and xml.get("id") == iq_id


def elements(iq: ET.Element) -> dict[str, ET.Element]:
    """The elements of a batch by their ids."""
    return {element.get(ID, ""): element for element in iq[0]}


def answers(result: ET.Element) -> dict[str, str]:
    """Of each answer, by its id: `received`, `hold`, an error's condition, or ''."""
    found = {}
    for each in result[0]:
        assert each.tag in {f"{{{BATCH}}}result", f"{{{BATCH}}}error"}
        found[each.get("id", "")] = said_in(each)
    return found


def said_in(iq: ET.Element) -> str:
    """What an answer says: `received`, `hold`, an error's condition, or ''."""
    condition = iq.find(f".//{{{STANZAS}}}*")
    if condition is not None:
        return local(condition)
    return local(iq[0]) if len(iq) else ""


def result(iq_id: str, content: str = "") -> str:
    """An answer in the result for a batch."""
    return f"<result id={quoteattr(iq_id)}>{content}</result>"


def error(iq_id: str, condition: str, kind: str) -> str:
    """An error, likewise."""
    return (
        f"<error id={quoteattr(iq_id)}><error type='{kind}'>"
        f"<{condition} xmlns='{STANZAS}'/></error></error>"
    )


def content(element: ET.Element, *, hold: str = "h") -> str:
    """What answers this element well; the hold of a message is this and its msgId."""
    msg_id = element.get("msgId", "")
    kind = local(element)
    if kind == "assured":
        marks = f"xmlns:m='{MARKS}' m:hold={quoteattr(hold + msg_id)}"
        return f"<received msgId={quoteattr(msg_id)} {marks}/>"
    if kind == "deliver":
        return f"<hold xmlns='{MARKS}'>{element.get(f'{{{MARKS}}}hold')}</hold>"
    return ""


def all_well(iq: ET.Element) -> str:
    """The batch that answers each request of a batch as it should be."""
    return batch(*(result(i, content(each)) for i, each in elements(iq).items()))


async def serve(peer: RawPeer, *, seen: list[ET.Element]) -> None:
    """Answer all requests well, in a batch or alone, until cancelled."""
    while True:
        iq = await peer.expect(lambda xml: xml.get("type") == "set", timeout_s=60)
        seen.append(iq)
        await answer(iq, peer, all_well(iq) if is_batch(iq) else content(iq[0]))


async def next_batch(peer: RawClient) -> ET.Element:
    """The next batch of requests that comes."""
    return await peer.expect(is_batch)
