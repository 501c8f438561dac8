"""Names and ids as segments of a URL: the doors by HTTP have nothing else to reach them by."""

from __future__ import annotations

from urllib.parse import quote

__all__ = ["SEGMENT_BYTES_MAX", "segment_size", "why_no_segment"]

#: The bytes of a name or an id in a URL, where other characters than letters, digits and
#: `-._~` take three bytes for each of theirs. A request line and a header of 8 KiB have room
#: for two of them.
SEGMENT_BYTES_MAX = 3 * 1024

# RFC 3986 §6.2.2.3: clients take them out of a path, quoted or not.
_DOTS = frozenset({".", ".."})


def segment_size(text: str) -> int:
    """The bytes of a text as a segment of a URL."""
    return len(quote(text, safe="", errors="replace"))


def why_no_segment(text: str) -> str:
    """Why a text cannot be the name of a node or the id of an item; '': it can."""
    if text in _DOTS:
        return f"{text!r} cannot be in a URL: choose another one"
    # A character has at most four bytes.
    if len(text) <= SEGMENT_BYTES_MAX // 12:
        return ""
    size = segment_size(text)
    if size > SEGMENT_BYTES_MAX:
        return (
            f"{text[:20]!r}… takes {size} bytes in a URL, over the limit of "
            f"{SEGMENT_BYTES_MAX}"
        )
    return ""
