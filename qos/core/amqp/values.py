"""The encoding of AMQP 1.0 values (part 1 of the standard, §1.6).

A message is handed on byte for byte, so only a few values are ever decoded: those of a
header, of the properties, and the keys of annotations. `end_of` finds the end of any
value from its constructor alone, however deeply it is nested, and decodes nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Literal, TypeAlias

from qos.errors import RemoteProtocolError

__all__ = [
    "DESCRIBED",
    "NULL",
    "DecodeError",
    "Kind",
    "Value",
    "binary",
    "boolean",
    "decode",
    "decode_carried",
    "descriptor",
    "double",
    "elements",
    "end_of",
    "long",
    "pack_list",
    "pack_map",
    "string",
    "symbol",
    "symbols",
    "timestamp",
    "ubyte",
    "uint",
    "ulong",
    "uuid",
]

Kind: TypeAlias = Literal[
    "null", "boolean", "unsigned", "ulong", "signed", "float", "timestamp", "uuid",
    "binary", "string", "symbol", "other",
]  # fmt: skip

#: A decoded value with its kind: a string and a symbol, or an ulong and an uuid, may
#: otherwise look the same. Of the kind `other`, the value is its bytes.
Value: TypeAlias = tuple[Kind, bool | int | float | str | bytes | None]

NULL = b"\x40"

#: The constructor that begins a described value: a descriptor and a value follow.
DESCRIBED = 0x00

#: By the upper half of a constructor, the bytes of a value of fixed width.
_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}

#: Likewise, the bytes that give the size of a value of variable width, of a compound,
#: and of an array.
_SIZES = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}

#: The constructors of lists and maps, each with the bytes of its size and its count.
_COMPOUNDS = {0xC0: 1, 0xD0: 4, 0xC1: 1, 0xD1: 4}

_EMPTY_LIST = 0x45

#: By constructor: the kind of the value, and whether its number has a sign.
_NUMBERS: dict[int, tuple[Kind, bool]] = {
    0x50: ("unsigned", False), 0x60: ("unsigned", False),
    0x70: ("unsigned", False), 0x52: ("unsigned", False), 0x43: ("unsigned", False),
    0x80: ("ulong", False), 0x53: ("ulong", False), 0x44: ("ulong", False),
    0x51: ("signed", True), 0x61: ("signed", True), 0x71: ("signed", True),
    0x54: ("signed", True), 0x81: ("signed", True), 0x55: ("signed", True),
    0x83: ("timestamp", True),
}  # fmt: skip

_FLOATS = {0x72: ">f", 0x82: ">d"}

_TEXTS: dict[int, Kind] = {
    0xA1: "string", 0xB1: "string", 0xA3: "symbol", 0xB3: "symbol",
}  # fmt: skip

_SHORT_MAX = 0xFF

#: What a descriptor of one byte begins with: all sections have one, as clients write.
_SMALL_DESCRIPTOR = bytes((DESCRIBED, 0x53))


class DecodeError(RemoteProtocolError):
    """Bytes of the peer are not what AMQP 1.0 says; answered with `decode-error`.

    Attributes:
        position: of the first byte that is wrong, from 0.
    """

    def __init__(self, text: str, position: int) -> None:
        super().__init__(
            f"{text} at byte {position}", condition="bad-request", type="modify"
        )
        self.position = position


def end_of(data: bytes, start: int) -> int:
    """The position after the value that begins at `start`; nothing is decoded.

    Raises:
        DecodeError: the data ends before the value, or no value begins there.
    """
    at, values = start, 1
    while values:
        code = _byte(data, at)
        at += 1
        if code == DESCRIBED:
            # Its descriptor and its value. Not recursive: a hostile peer chooses how
            # deeply they are nested.
            values += 1
            continue
        kind = code >> 4
        if kind in _FIXED:
            end = at + _FIXED[kind]
        elif kind in _SIZES:
            width = _SIZES[kind]
            end = at + width + _number(data, at, width)
        else:
            raise DecodeError(f"no value begins with 0x{code:02x}", at - 1)
        if end > len(data):
            raise DecodeError(f"a value of type 0x{code:02x} is cut off", at - 1)
        at, values = end, values - 1
    return at


def descriptor(data: bytes, start: int) -> tuple[int | str, int]:
    """The descriptor of the described value at `start`, and where its value begins.

    Raises:
        DecodeError: there is no described value.
    """
    if data.startswith(_SMALL_DESCRIPTOR, start) and start + 2 < len(data):
        return data[start + 2], start + 3
    if _byte(data, start) != DESCRIBED:
        raise DecodeError("no described value", start)
    end = end_of(data, start + 1)
    kind, value = decode(data[start + 1 : end])
    if kind == "ulong" or kind == "symbol":
        assert isinstance(value, int | str)
        return value, end
    raise DecodeError("a descriptor is neither ulong nor symbol", start + 1)


def elements(data: bytes) -> list[bytes]:
    """The encoded elements of one list, or the keys and values of one map.

    Raises:
        DecodeError: the data is not exactly one list or map.
    """
    code = _byte(data, 0)
    if code == _EMPTY_LIST and len(data) == 1:
        return []
    if code not in _COMPOUNDS:
        raise DecodeError(f"neither a list nor a map, but 0x{code:02x}", 0)
    width = _COMPOUNDS[code]
    size, count = _number(data, 1, width), _number(data, 1 + width, width)
    at, end = 1 + 2 * width, 1 + width + size
    if end != len(data):
        raise DecodeError("the size of a list or map is wrong", 1)
    parts: list[bytes] = []
    # Not range(count): a hostile peer chooses the count.
    while at < end and len(parts) < count:
        after = end_of(data, at)
        parts.append(data[at:after])
        at = after
    if at != end or len(parts) != count:
        raise DecodeError("the count of a list or map is wrong", 1 + width)
    return parts


def decode(data: bytes) -> Value:
    """The one value in the data; anything but a simple one stays as it is.

    Raises:
        DecodeError: the data is not exactly one value, or its text is not UTF-8.
    """
    if end_of(data, 0) != len(data):
        raise DecodeError("more than one value", 0)
    code = data[0]
    if code == NULL[0]:
        return "null", None
    if code in {0x41, 0x42}:
        return "boolean", code == 0x41
    if code == 0x56:
        return "boolean", data[1] != 0
    if code in _NUMBERS:
        kind, signed = _NUMBERS[code]
        return kind, int.from_bytes(data[1:], "big", signed=signed)
    if code in _FLOATS:
        (number,) = struct.unpack(_FLOATS[code], data[1:])
        return "float", float(number)
    content = data[1 + _SIZES.get(code >> 4, 0) :]
    if code in _TEXTS:
        try:
            return _TEXTS[code], content.decode()
        except UnicodeDecodeError as error:
            raise DecodeError("a text is not UTF-8", error.start) from error
    if code in {0xA0, 0xB0}:
        return "binary", content
    if code == 0x98:
        return "uuid", content.hex()
    return "other", data


def decode_carried(data: bytes) -> Value:
    """The one value in the data, of a part that is only carried.

    A text that is not UTF-8 stays as it is, of the kind `other`: it is no reason to
    refuse a message in which nobody here has to read it.

    Raises:
        DecodeError: the data is not exactly one value.
    """
    try:
        return decode(data)
    except DecodeError:
        if end_of(data, 0) != len(data):
            raise
        return "other", data


# -- writing ---------------------------------------------------------------


def boolean(value: bool) -> bytes:
    """An encoded boolean."""
    return b"\x41" if value else b"\x42"


def ubyte(value: int) -> bytes:
    """An encoded ubyte."""
    return bytes((0x50, value))


def uint(value: int) -> bytes:
    """An encoded uint."""
    return b"\x52" + bytes((value,)) if value <= _SHORT_MAX else b"p" + _u32(value)


def ulong(value: int) -> bytes:
    """An encoded ulong."""
    short = value <= _SHORT_MAX
    return b"\x53" + bytes((value,)) if short else b"\x80" + struct.pack(">Q", value)


def uuid(value: bytes) -> bytes:
    """An encoded uuid, of its 16 bytes."""
    return b"\x98" + value


def long(value: int) -> bytes:
    """An encoded long."""
    return b"\x81" + struct.pack(">q", value)


def double(value: float) -> bytes:
    """An encoded double."""
    return b"\x82" + struct.pack(">d", value)


def timestamp(milliseconds: int) -> bytes:
    """An encoded timestamp: milliseconds since 1970."""
    return b"\x83" + struct.pack(">q", milliseconds)


def binary(value: bytes) -> bytes:
    """An encoded binary."""
    return _variable(0xA0, value)


def string(value: str) -> bytes:
    """An encoded string."""
    return _variable(0xA1, value.encode())


def symbol(value: str) -> bytes:
    """An encoded symbol; ASCII."""
    return _variable(0xA3, value.encode("ascii"))


def symbols(values: Sequence[str]) -> bytes:
    """An encoded array of symbols."""
    packed = [value.encode("ascii") for value in values]
    content = b"\xb3" + b"".join([_u32(len(element)) + element for element in packed])
    return b"\xf0" + _u32(len(content) + 4) + _u32(len(packed)) + content


def pack_list(values: Sequence[bytes]) -> bytes:
    """A list of encoded values."""
    return _compound(0xC0, values)


def pack_map(values: Sequence[bytes]) -> bytes:
    """A map of encoded keys and values, in turn."""
    return _compound(0xC1, values)


def _variable(code: int, content: bytes) -> bytes:
    if len(content) <= _SHORT_MAX:
        return bytes((code, len(content))) + content
    # The constructor of the same type with a longer size.
    return bytes((code + 0x10,)) + _u32(len(content)) + content


def _compound(code: int, values: Sequence[bytes]) -> bytes:
    content = b"".join(values)
    if len(content) < _SHORT_MAX and len(values) <= _SHORT_MAX:
        return bytes((code, len(content) + 1, len(values))) + content
    return bytes((code + 0x10,)) + _u32(len(content) + 4) + _u32(len(values)) + content


def _u32(value: int) -> bytes:
    return struct.pack(">I", value)


# -- reading ---------------------------------------------------------------


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise DecodeError("the data ends", at)
    return data[at]


def _number(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise DecodeError("the data ends", len(data))
    return int.from_bytes(data[at : at + width], "big")
