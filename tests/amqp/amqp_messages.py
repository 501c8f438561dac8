"""Messages of format 0, generated: every section, in many of its encodings."""

from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st

from qos.core.amqp import values
from qos.core.amqp.sections import Section
from qos.core.amqp.values import DecodeError

T = TypeVar("T")


def read_or_refused(read: Callable[[bytes], T], data: bytes) -> T | None:
    """The content that a reader finds in these bytes; None: it refused them, and said where."""
    try:
        return read(data)
    except DecodeError as error:
        if not 0 <= error.position <= len(data):
            raise AssertionError(f"{error}: of {len(data)} bytes") from error
    return None


simple = st.one_of(
    st.just(values.NULL),
    st.booleans().map(values.boolean),
    st.integers(0, 255).map(values.ubyte),
    st.integers(0, 2**32 - 1).map(values.uint),
    st.integers(0, 2**64 - 1).map(values.ulong),
    st.integers(-(2**63), 2**63 - 1).map(values.timestamp),
    st.binary(max_size=300).map(values.binary),
    st.text(max_size=20).map(values.string),
    st.binary(min_size=16, max_size=16).map(lambda some: b"\x98" + some),
    st.binary(min_size=8, max_size=8).map(lambda some: b"\x82" + some),
)

nested = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(values.pack_list),
        st.lists(st.tuples(simple, inner), max_size=3).map(
            lambda pairs: values.pack_map([each for pair in pairs for each in pair])
        ),
        st.tuples(simple, inner).map(lambda pair: b"\x00" + b"".join(pair)),
    ),
    max_leaves=6,
)

_names = st.from_regex(r"x-opt-[a-z]{0,8}", fullmatch=True)

annotations = st.dictionaries(_names, nested, max_size=3).map(
    lambda pairs: values.pack_map(
        [each for key, value in pairs.items() for each in (values.symbol(key), value)]
    )
)

header = st.tuples(
    st.booleans().map(values.boolean),
    st.integers(0, 255).map(values.ubyte),
    st.one_of(st.just(values.NULL), st.integers(0, 2**32 - 1).map(values.uint)),
).flatmap(lambda fields: st.integers(0, 3).map(lambda n: values.pack_list(fields[:n])))

message_ids = st.one_of(
    st.just(values.NULL),
    st.integers(0, 2**64 - 1).map(values.ulong),
    st.binary(min_size=16, max_size=16).map(lambda some: b"\x98" + some),
    st.binary(max_size=1200).map(values.binary),
    st.text(max_size=1200).map(values.string),
)

properties = st.tuples(message_ids, st.just(values.NULL), st.just(values.NULL)).flatmap(
    lambda fields: st.integers(0, 3).map(lambda n: values.pack_list(fields[:n]))
)

application_properties = st.dictionaries(st.text(max_size=8), simple, max_size=4).map(
    lambda pairs: values.pack_map(
        [each for key, value in pairs.items() for each in (values.string(key), value)]
    )
)

data = st.one_of(st.binary(max_size=400), st.just(b"<a b='c'>d</a>")).map(values.binary)

body = st.one_of(
    st.lists(data, min_size=1, max_size=3).map(
        lambda some: [(Section.DATA, each) for each in some]
    ),
    st.lists(st.lists(nested, max_size=3), min_size=1, max_size=2).map(
        lambda some: [(Section.SEQUENCE, values.pack_list(each)) for each in some]
    ),
    nested.map(lambda value: [(Section.VALUE, value)]),
    st.just([]),
)

_ONCE = {
    Section.HEADER: header,
    Section.DELIVERY_ANNOTATIONS: annotations,
    Section.MESSAGE_ANNOTATIONS: annotations,
    Section.PROPERTIES: properties,
    Section.APPLICATION_PROPERTIES: application_properties,
    Section.FOOTER: annotations,
}

#: By section, how its descriptor may be written.
_DESCRIPTORS = (
    lambda code: bytes((0x00, 0x53, code)),
    lambda code: bytes((0x00, 0x80, 0, 0, 0, 0, 0, 0, 0, code)),
)


@st.composite
def sections(draw: st.DrawFn) -> list[tuple[Section, bytes]]:
    """The sections of a message, in any order, each with its bytes."""
    found = [
        (each, draw(strategy))
        for each, strategy in _ONCE.items()
        if draw(st.booleans())
    ]
    found += draw(body)
    if draw(st.booleans()):
        found = draw(st.permutations(found))
    write = draw(st.sampled_from(_DESCRIPTORS))
    return [(each, write(each) + value) for each, value in found]
