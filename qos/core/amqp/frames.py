"""AMQP 1.0 frames (transport §2.3): a stream cut into frames, and their performatives.

A frame is left as bytes; only the fields of a few performatives are read, and now and
then some are written anew. What is behind a performative, such as the content of a
transfer, is not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from qos.core.amqp.values import (
    NULL,
    DecodeError,
    decode,
    descriptor,
    elements,
    end_of,
    pack_list,
)

__all__ = [
    "HEAD_BYTES",
    "FrameCutter",
    "Performative",
    "field_bytes",
    "fields_of",
    "flag",
    "list_at",
    "number",
    "rewritten",
    "usual_transfer",
]

#: The bytes of the header of a protocol, and of the head of a frame.
HEAD_BYTES = 8

_AMQP_FRAME = 0
_ULONG_SHORT, _ULONG_ZERO = 0x53, 0x44
_LIST_SHORT = 0xC0

#: The places of some fields of a transfer, and how the last one may say no.
_HANDLE, _TAG, _FORMAT, _RESUME = 0, 2, 3, 8
_NO = (0x40, 0x42)
_UINTS = (0x43, 0x52, 0x70)
_BINARY_SHORT = 0xA0

#: By the upper half of a constructor, the bytes of a value of fixed width.
_WIDTHS = {0x4: 0, 0x5: 1, 0x7: 4}


class Performative(IntEnum):
    """The performatives that are read, by the codes of their descriptors."""

    OPEN = 0x10
    BEGIN = 0x11
    ATTACH = 0x12
    TRANSFER = 0x14
    DETACH = 0x16
    END = 0x17


class FrameCutter:
    """Cuts a stream into the header of its protocol and whole frames.

    Attributes:
        error: set by a frame of an impossible size, with its position in the stream;
            nothing behind it is cut.
    """

    def __init__(self, frame_bytes_max: int) -> None:
        """Begin.

        Args:
            frame_bytes_max: the most bytes of a frame.
        """
        self.error: DecodeError | None = None
        self._bytes_max = frame_bytes_max
        self._rest = b""
        self._position = 0
        self._begun = False

    def cut(self, data: bytes) -> list[bytes]:
        """Take the next bytes; returns what is whole now, in order."""
        if self.error is not None:
            return []
        if self._rest:
            data = self._rest + data
        whole: list[bytes] = []
        at, end = 0, len(data)
        if not self._begun and end >= HEAD_BYTES:
            self._begun = True
            at = HEAD_BYTES
            whole.append(data[:at])
        while self._begun and end - at >= HEAD_BYTES:
            size = int.from_bytes(data[at : at + 4], "big")
            if not HEAD_BYTES <= size <= self._bytes_max:
                self.error = DecodeError(
                    f"a frame of {size} bytes", self._position + at
                )
                break
            if at + size > end:
                break
            whole.append(data[at : at + size])
            at += size
        self._position += at
        self._rest = data[at:]
        return whole


def list_at(frame: bytes) -> tuple[int, int]:
    """The code of the performative of a frame, and the position of its list.

    The code is -1 for a frame without a performative, of another type, or with a
    descriptor that is no ulong.

    Raises:
        DecodeError: the head is wrong, or the descriptor is cut off.
    """
    at = 4 * frame[4]
    if not HEAD_BYTES <= at <= len(frame):
        raise DecodeError(f"a data offset of {frame[4]} words", 4)
    if frame[5] != _AMQP_FRAME or at == len(frame):
        return -1, at
    if frame[at : at + 2] == b"\x00\x53" and at + 2 < len(frame):
        return frame[at + 2], at + 3
    code, value_at = descriptor(frame, at)
    return (code if isinstance(code, int) else -1), value_at


def fields_of(frame: bytes, at: int) -> tuple[list[bytes], int]:
    """The encoded fields of the list at `at`, and the position behind it.

    Raises:
        DecodeError: there is no whole list.
    """
    end = end_of(frame, at)
    return elements(frame[at:end]), end


def usual_transfer(frame: bytes, at: int) -> tuple[int, bytes] | None:
    """The handle and the delivery-tag of a transfer of format 0 that is not resumed.

    This is asked for each transfer, so it is quick; None may also mean that the
    transfer is written in an unusual way.

    Args:
        frame: with a transfer.
        at: where its list begins.

    Returns:
        The tag is b'' if there is none: the transfer goes on with a delivery.
    """
    handle, tag = 0, b""
    try:
        count = frame[at + 2]
        if frame[at] != _LIST_SHORT:
            return None
        at += 3
        for place in range(min(count, _RESUME + 1)):
            code = frame[at]
            if place == _RESUME:
                return (handle, tag) if code in _NO else None
            start = at + 1
            if code == _BINARY_SHORT:
                start += 1
                width = frame[at + 1]
            else:
                width = _WIDTHS[code >> 4]
            at = start + width
            if place == _HANDLE:
                if code not in _UINTS:
                    return None
                handle = int.from_bytes(frame[start:at], "big")
            elif place == _TAG:
                tag = frame[start:at]
                if code != NULL[0] and not tag:
                    return None
            elif place == _FORMAT and any(frame[start:at]):
                return None
    except (IndexError, KeyError):
        return None
    return handle, tag


# -- fields ----------------------------------------------------------------


def field_bytes(fields: Sequence[bytes], place: int) -> bytes:
    """The encoded field at this place; null if the list is shorter."""
    return fields[place] if place < len(fields) else NULL


def number(fields: Sequence[bytes], place: int, default: int = 0) -> int:
    """The unsigned number at this place.

    Raises:
        DecodeError: it is something else.
    """
    kind, value = decode(field_bytes(fields, place))
    if kind == "null":
        return default
    if kind not in ("unsigned", "ulong"):
        raise DecodeError(f"field {place} is no unsigned number", 0)
    assert isinstance(value, int)
    return value


def flag(fields: Sequence[bytes], place: int) -> bool:
    """The boolean at this place; False if there is none.

    Raises:
        DecodeError: it is something else.
    """
    kind, value = decode(field_bytes(fields, place))
    if kind not in ("null", "boolean"):
        raise DecodeError(f"field {place} is no boolean", 0)
    return bool(value)


def rewritten(frame: bytes, at: int, changes: Mapping[int, bytes]) -> bytes:
    """A frame with other fields in its list, the same otherwise.

    Args:
        frame: of the AMQP layer.
        at: where its list begins.
        changes: encoded fields by their places.
    """
    fields, end = fields_of(frame, at)
    fields += [NULL] * (max(changes, default=-1) + 1 - len(fields))
    for place, value in changes.items():
        fields[place] = value
    rest = frame[4:at] + pack_list(fields) + frame[end:]
    return (len(rest) + 4).to_bytes(4, "big") + rest
