"""Batches written and read by hand (plugins/xep_qos/BATCH.md), for raw peers."""

from collections.abc import Callable, Collection
from typing import Final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

from raw_client import RawClient, local
from test_raw_peers import MARKS, QOS, STANZAS, RawPeer, answer, assured

BATCH: Final = "xmpp-qos:batch:0"
#: The features of a peer that accepts batches.
FEATURES: Final = (QOS, MARKS, BATCH)


def batch(*elements: str, mark: str = "s") -> str:
    """A batch with these elements, of the store with this mark."""
    return f"<batch xmlns='{BATCH}' sender='{mark}'>{''.join(elements)}</batch>"


def with_id(iq_id: str, element: str) -> str:
    """The element with this id."""
    name, _, rest = element.partition(" ")
    return f"{name} id={quoteattr(iq_id)} {rest}"


def offers(numbers: Collection[int]) -> list[str]:
    """For each number n an `assured` with the id `in` and the msgId `mn`."""
    return [with_id(f"i{number}", assured(f"m{number}")) for number in numbers]


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
    return {element.get("id", ""): element for element in iq[0]}


def answers(result: ET.Element) -> dict[str, str]:
    """For each answer, by its id: `received`, `result` or the condition of an error."""
    found = {}
    for each in result[0]:
        assert each.tag.startswith(f"{{{BATCH}}}")
        name = local(each)
        found[each.get("id", "")] = local(each[0]) if name == "error" else name
    return found


def holds(result: ET.Element) -> dict[str, str]:
    """The holds in the result for a batch, by msgId."""
    return {each.get("msgId", ""): each.get("hold", "") for each in result[0]}


def error(iq_id: str, condition: str, kind: str) -> str:
    """An error in the result for a batch."""
    return (
        f"<error id={quoteattr(iq_id)} type='{kind}'>"
        f"<{condition} xmlns='{STANZAS}'/></error>"
    )


def well(element: ET.Element) -> str:
    """The correct answer to this request in a batch; see `content`."""
    iq_id, msg_id = quoteattr(element.get("id", "")), element.get("msgId", "")
    if local(element) == "assured":
        return (
            f"<received id={iq_id} msgId={quoteattr(msg_id)} "
            f"hold={quoteattr('h' + msg_id)}/>"
        )
    hold = element.get("hold")
    return f"<result id={iq_id}{f' hold={quoteattr(hold)}' if hold else ''}/>"


def all_well(iq: ET.Element) -> str:
    """The batch that answers each request of a batch correctly."""
    return batch(*map(well, iq[0]))


def content(element: ET.Element) -> str:
    """The content of the correct answer to this request alone, as in the proto-XEP.

    The hold of a message is `h` and its msgId.
    """
    msg_id = element.get("msgId", "")
    if local(element) == "assured":
        marks = f"xmlns:m='{MARKS}' m:hold={quoteattr('h' + msg_id)}"
        return f"<received msgId={quoteattr(msg_id)} {marks}/>"
    if local(element) == "deliver":
        return f"<hold xmlns='{MARKS}'>{element.get(f'{{{MARKS}}}hold')}</hold>"
    return ""


async def serve(peer: RawPeer, *, seen: list[ET.Element]) -> None:
    """Answer all requests correctly, in a batch or alone, until cancelled."""
    while True:
        iq = await peer.expect(lambda xml: xml.get("type") == "set", timeout_s=None)
        seen.append(iq)
        await answer(iq, peer, all_well(iq) if is_batch(iq) else content(iq[0]))


async def next_batch(peer: RawClient) -> ET.Element:
    """The next batch of requests that comes."""
    return await peer.expect(is_batch)
