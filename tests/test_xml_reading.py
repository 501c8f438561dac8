"""A document of a stranger costs what its bytes are, and is read in short steps."""

import tracemalloc
from xml.etree import ElementTree as ET

import pytest

from qos.xml_reading import NAMESPACE_BYTES_MAX, has_long_namespace, parse, parsing

LONG = b"u" * (NAMESPACE_BYTES_MAX + 1)


@pytest.mark.parametrize(
    "xml",
    [
        b"<a xmlns='%s'/>" % LONG,
        b'<a xmlns:q = "%s"/>' % LONG,
        b"<a b='=\"' xmlns:q='%s'/>" % LONG,
        b"<a b='=' c=\"='\" xmlns:q\n=\n'%s'/>" % LONG,
        b"<a c=\"='%s\" xmlns:q='%s'/>" % (b"x" * 490, LONG),
        b"<a>x=<b xmlns:%s='%s'/></a>" % (b"p" * 600, LONG),
    ],
)
def test_a_long_namespace_is_found_wherever_it_stands(xml: bytes) -> None:
    """A parser repeats it in each name: 58 kB of them took 170 MB."""
    ET.fromstring(xml)  # noqa: S314 - ours: it is well-formed
    assert has_long_namespace(xml)
    with pytest.raises(ValueError, match="more than 512 bytes"):
        parse(xml)


@pytest.mark.parametrize(
    "xml",
    [
        b"<a xmlns='%s'/>" % LONG[1:],
        b"<a b='%s'/>" % LONG,
        b"<a xmlns='u' b='%s'/>" % LONG,
        b"<a xmlns='u'>b='%s'</a>" % LONG,
    ],
)
def test_what_is_long_otherwise_is_read(xml: bytes) -> None:
    """Values and texts are as long as they like."""
    assert parse(xml).root.tag.endswith("a")


def test_a_document_has_a_depth_that_fits_into_a_stanza() -> None:
    """With all that may stand around it, the receiver's stream takes it."""
    for depth, is_taken in ((57, True), (58, False), (100_000, False)):
        xml = b"<a>" * depth + b"</a>" * depth
        if is_taken:
            assert parse(xml)
        else:
            with pytest.raises(ValueError, match="nested more than 57 deep"):
                parse(xml)


def test_the_memory_grows_with_the_bytes_and_not_with_their_square() -> None:
    """Names that a stranger makes up, all in the longest namespace."""
    peaks = []
    for count in (500, 2000):
        names = b"".join(b"<q:b%d/>" % each for each in range(count))
        xml = b"<a xmlns:q='%s'>%s</a>" % (LONG[1:], names)
        tracemalloc.start()
        parse(xml)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 6 * peaks[0]


def test_a_long_document_is_read_in_steps() -> None:
    """None of them takes a whole turn of the event loop."""
    xml = b"<a xmlns='u'>" + b"<b/>" * 25_000 + b"</a>"
    steps = parsing(xml)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            document = done.value
            break
        count += 1
    assert count > 10
    assert document.is_qualified
    assert len(document.root) == 25_000


def test_one_element_without_a_namespace_is_noticed() -> None:
    """It would get the namespace around it, as a child of another one."""
    assert parse(b"<a xmlns='u'><b/></a>").is_qualified
    assert not parse(b"<a xmlns='u'><b xmlns=''/></a>").is_qualified
    assert not parse(b"<a><b xmlns='u'/></a>").is_qualified


@pytest.mark.parametrize(
    "xml",
    [
        b"",
        b"<a>",
        b"<a/><b/>",
        b"<a></b>",
        b"<p:a/>",
        b"\xff",
        b"<a>" * 50 + b"x" * 9000,
    ],
)
def test_what_is_not_well_formed_is_no_document(xml: bytes) -> None:
    """Also if it ends in the middle."""
    with pytest.raises(ET.ParseError):
        parse(xml)
