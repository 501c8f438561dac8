"""The two forms of an answer with a message: its headers are those of the answer, or in its body.

See `qos.core.rest.header_room` for the reason.
"""

from __future__ import annotations

from dataclasses import replace

from qos.core.rest.header_room import (
    HEADERS_BYTES_MAX,
    MULTIPART,
    headers_size,
    is_of_message,
    render_part,
    wants_part,
)
from qos.core.rest.link_header import Link, render_links
from qos.ids import new_id
from qos.rest.calls import Answer, Call, as_text

__all__ = ["in_form"]


def in_form(call: Call, answer: Answer) -> Answer:
    """An answer with a message, in the form that its client asks for.

    A message that does not fit into the plain form is given back: that is no delivery.

    Args:
        call: of the client.
        answer: in the plain form; any other answer stays as it is.
    """
    if answer.needs is None:
        return answer
    if wants_part(call.headers.get("accept", "")):
        return _in_part(answer)
    needed = answer.links[: answer.needs]
    size = headers_size(answer.headers, needed)
    if size <= HEADERS_BYTES_MAX:
        return answer
    if answer.sent is not None:
        answer.sent(False)
    refusal = as_text(
        406,
        f"the headers of this message have {size} bytes, over the limit of "
        f"{HEADERS_BYTES_MAX}: ask for it with Accept: {MULTIPART}, and they are in the "
        "body. It has not been taken",
    )
    # A reader of a topic can go on with the next message.
    refusal.links = [each for each in needed if each.rel == "next"]
    return refusal


def _in_part(answer: Answer) -> Answer:
    boundary = new_id()
    about = {k: v for k, v in answer.headers.items() if not is_of_message(k)}
    about["Content-Type"] = f"{MULTIPART}; boundary={boundary}"
    its = {k: v for k, v in answer.headers.items() if is_of_message(k)}
    links = _joined(answer.links, its.pop("Link", ""))
    if links:
        its["Link"] = links
    return replace(
        answer,
        headers=about,
        # One that is too long for a header is in the part alone.
        links=answer.links if _has_room(about, answer.links[:1]) else [],
        body=render_part(its, answer.body, boundary),
    )


def _joined(links: list[Link], others: str) -> str:
    return ", ".join(filter(None, (render_links(links), others)))


def _has_room(headers: dict[str, str], links: list[Link]) -> bool:
    return headers_size(headers, links) <= HEADERS_BYTES_MAX
