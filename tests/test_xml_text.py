"""A parser reads back what `qos.xml_text` writes, and no value breaks out.

ElementTree is the judge: whatever it can hold must come back from it unchanged.
"""

import sys
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qos.xml_text import attribute, render, same_message, text

XML = "http://www.w3.org/XML/1998/namespace"
DEEP = 50_000

# XML 1.0 §2.2, Char.
LEGAL = st.characters(
    exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"
)
CHARACTERS = st.one_of(st.sampled_from("\t\n\r <>&'\"]\x7f\x85\u2028\ufffd😀"), LEGAL)
TEXTS = st.text(CHARACTERS, max_size=12)
NAMES = st.sampled_from(["message", "body", "a0", "x-1", "xmlnsy", "é", "_", "item.b"])
NAMESPACES = st.sampled_from(
    ["", "jabber:client", "urn:xmpp:qos", "urn:'quoted'&<more>", XML]
)
ILLEGAL = st.one_of(
    st.sampled_from([chr(code) for code in range(32) if code not in {9, 10, 13}]),
    st.sampled_from(["\ufffe", "\uffff"]),
    st.characters(categories=["Cs"]),
)


def parse(xml: str) -> ET.Element:
    return ET.fromstring(xml)  # noqa: S314


def qualified(namespace: str, name: str) -> str:
    return f"{{{namespace}}}{name}" if namespace else name


TAGS = st.builds(qualified, NAMESPACES, NAMES)


@st.composite
def elements(draw: st.DrawFn, depth: int = 3) -> ET.Element:
    """Anything that ElementTree can hold and XML can carry."""
    element = ET.Element(draw(TAGS), draw(st.dictionaries(TAGS, TEXTS, max_size=3)))
    element.text = draw(st.none() | TEXTS)
    if depth:
        for child in draw(st.lists(elements(depth - 1), max_size=3)):
            child.tail = draw(st.none() | TEXTS)
            element.append(child)
    return element


def flat(root: ET.Element) -> list[object]:
    """All relevant parts of a tree, without recursion; absent text is ''."""
    found: list[object] = []
    rest: list[ET.Element | str] = [root]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            found.append(item)
            continue
        found.append((item.tag, dict(item.attrib), item.text or ""))
        rest.append("end")
        for child in reversed(item):
            rest.append(child.tail or "")
            rest.append(child)
    return found


def nested(depth: int) -> ET.Element:
    return parse("<a>" * depth + "</a>" * depth)


@settings(max_examples=120)
@given(elements())
@example(parse("<message xmlns='jabber:client'><xml:lang>x</xml:lang></message>"))
@example(parse("<a xmlns='u'><xml:b><c/></xml:b></a>"))
@example(parse("<a xml:lang='de' xml:space='preserve'><b xml:lang=''/></a>"))
@example(parse("<a><b xmlns='u'><c xmlns=''/>t</b></a>"))
@example(parse("<a xmlns:p='u' p:x='1' x='2'><b p:x='3'/></a>"))
def test_what_was_written_reads_as_it_was(element: ET.Element) -> None:
    """A payload is parsed and written at each end, and must not change on the way."""
    assert flat(parse(render(element))) == flat(element)


@settings(max_examples=100)
@given(elements())
def test_writing_what_was_read_changes_nothing_more(element: ET.Element) -> None:
    """A retry repeats the same bytes, however often the payload was stored and read."""
    once = render(element)
    assert render(parse(once)) == once


@settings(max_examples=100)
@given(elements(), elements(depth=1), NAMESPACES)
def test_an_element_of_a_namespace_stands_anywhere(
    element: ET.Element, other: ET.Element, around: str
) -> None:
    """To embed an element, its text is put between two tags, whatever their namespace
    is.
    """
    xmlns = f" xmlns={attribute(around)}" if around != XML else ""
    document = parse(f"<x{xmlns}>{render(other)}{render(element)}</x>")
    # XML's own namespace has a fixed prefix, so elements inside it have another one
    # around.
    if element.tag.startswith("{") and not element.tag.startswith(f"{{{XML}}}"):
        assert flat(document[1]) == flat(element)


def test_the_tail_of_what_is_written_stays_away() -> None:
    """An embedded message must not bring text of its surroundings."""
    root = parse("<x><message>in</message>out</x>")
    assert render(root[0]) == "<message>in</message>"


@given(TEXTS)
def test_text_and_attribute_are_read_back_whole(value: str) -> None:
    """Including tabs, line feeds and carriage returns, which parsers like to change."""
    element = parse(f"<a b={attribute(value)}>{text(value)}</a>")
    assert element.get("b") == value
    assert (element.text or "") == value


@given(TEXTS)
def test_no_value_breaks_out_of_its_place(value: str) -> None:
    """Our answers contain an id of the peer: it must stay a value."""
    quoted = attribute(value)
    assert quoted[0] == quoted[-1]
    assert quoted[0] in "'\""
    for character in f"{quoted[0]}<\t\n\r":
        assert character not in quoted[1:-1]
    for character in "<\r":
        assert character not in text(value)
    assert "]]>" not in text(value)


@given(before=TEXTS, character=ILLEGAL, after=TEXTS)
def test_what_xml_cannot_carry_is_refused_wherever_it_stands(
    before: str, character: str, after: str
) -> None:
    """Otherwise the server would close the stream, at each attempt again."""
    value = before + character + after
    named = f"U\\+{ord(character):04X} at position {len(before)}"
    for write in (text, attribute):
        with pytest.raises(ValueError, match=named):
            write(value)
    trees = [ET.Element("a", {"b": value}), ET.Element("a"), ET.Element("a")]
    trees[1].text = value
    ET.SubElement(trees[2], "c").tail = value
    if "}" not in value:  # ElementTree's own mark where a namespace ends
        trees.append(ET.Element(f"{{{value}}}a"))
        trees.append(ET.Element("a", {f"{{{value}}}b": ""}))
    for tree in trees:
        with pytest.raises(ValueError, match="cannot be carried by XML"):
            render(tree)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "a b",
        "a b='c'",
        "a/",
        "a:b",
        "1",
        "-a",
        "a>",
        "<a",
        "\x00",
        "\ud800",
        "x" * 300 + " ",
    ],
)
def test_what_is_no_name_is_refused_wherever_it_stands(name: str) -> None:
    """An application may give an element any name, and a value might end where a name
    stands.
    """
    elements = [ET.Element(name), ET.Element("a", {name: ""}), ET.Element("a")]
    ET.SubElement(elements[2], f"{{urn:x}}{name}")
    for element in elements:
        with pytest.raises(ValueError, match="no name of XML"):
            render(element)


@given(elements(), NAMESPACES, st.frozensets(TAGS))
def test_an_element_can_be_written_as_of_another_namespace_and_without_attributes(
    element: ET.Element, namespace: str, without: frozenset[str]
) -> None:
    """A message of a component means the same as that of a client."""
    before = flat(element)
    written = parse(render(element, namespace=namespace, without=without))
    assert flat(element) == before
    own = element.tag.rpartition("}")[0].removeprefix("{")
    for each in element.iter():
        of, _, name = each.tag.rpartition("}")
        if of.removeprefix("{") == own:
            each.tag = qualified(namespace, name)
    for name in without:
        element.attrib.pop(name, None)
    assert flat(written) == flat(element)


def test_depth_that_a_hostile_peer_chooses_does_no_harm() -> None:
    """50,000 levels fit into one stanza; a recursion over them ends the process."""
    assert sys.getrecursionlimit() < DEEP
    written = render(nested(DEEP))
    assert written == "<a>" * (DEEP - 1) + "<a/>" + "</a>" * (DEEP - 1)
    assert flat(parse(written)) == flat(nested(DEEP))


def test_depth_costs_time_in_proportion() -> None:
    """A namespace that is only used on one level is written once at that level."""
    levels = "".join(f"<a xmlns='u{number}'>" for number in range(DEEP))
    tree = parse(levels + "</a>" * DEEP)
    assert render(tree).count(" xmlns=") == DEEP


def test_the_form_is_short_and_always_the_same() -> None:
    """A person finds the same text in a store or a log that he would write himself."""
    source = (
        "<message xmlns='jabber:client' type='chat' xml:lang='en'><body>a &lt; b "
        "&amp; \"c\"</body><log xmlns='urn:xmpp:eventlog'><tag/></log></message>"
    )
    assert render(parse(source)) == source


def test_foreign_attributes_keep_their_namespaces() -> None:
    """slixmpp's own serialiser drops them, and our marks are such attributes."""
    source = "<a xmlns='u' xmlns:a0='v' a0:b='1' a0:c='2' xmlns:a1='w' a1:b='3' b='4'/>"
    assert render(parse(source)) == source


#: Elements that make little of their namespaces, and a tree repeats them.
LONG = "u" * 500
SMALL = [
    f"<p:a xmlns:p='urn:p' xmlns:q='{LONG}'>" + "<q:b/>" * 2000 + "</p:a>",
    f"<p:a xmlns:p='urn:p' xmlns:q='{LONG}'>" + "<q:b/>x" * 2000 + "</p:a>",
    f"<a xmlns:q='{LONG}'>" + "<q:b/><b/>" * 2000 + "</a>",
    f"<a xmlns='u' xmlns:q='{LONG}'>" + "<b q:c=''/>" * 2000 + "</a>",
    f"<a xmlns='u' xmlns:q='{LONG}' xmlns:xml='{XML}'>"
    + "<xml:b><q:c/></xml:b>" * 2000
    + "</a>",
    "<a>"
    + "".join(f"<b xmlns='{LONG}{each}'><c/><c/></b>" for each in range(200))
    + "</a>",
    "<a"
    + "".join(f" xmlns:p{each}='u{each}'" for each in range(900))
    + ">"
    + "".join(f"<p{each}:b/>" for each in range(900)) * 20
    + "</a>",
    "<a>" + "'" * 3000 + ">" * 3000 + "</a>",
    '<a b="' + "'" * 3000 + '"/>',
    "<a b='" + '"' * 3000 + "'/>",
    '<a b="' + "'&quot;" * 3000 + '"/>',
    "<a b='" + ">" * 3000 + "'>" + "]]&gt;" * 3000 + "</a>",
]


@pytest.mark.parametrize("source", SMALL, ids=range(len(SMALL)))
def test_no_element_is_written_much_longer_than_it_came(source: str) -> None:
    """A stranger's 58 kB became 339 MB: each element had its namespace again."""
    written = render(parse(source))
    assert len(written) <= 2 * len(source) + 1024
    assert flat(parse(written)) == flat(parse(source))
    assert render(parse(written)) == written


@settings(max_examples=60)
@given(elements(), st.integers(1, 60), NAMESPACES)
def test_an_element_with_prefixes_reads_as_it_was(
    element: ET.Element, times: int, namespace: str
) -> None:
    """Wherever it is embedded, and with another namespace of its own."""
    long = ET.Element(f"{{{LONG}}}long", {f"{{{LONG}}}of": "x"})
    own = ET.Element(element.tag)
    own.extend([element, long] * times)
    written = parse(f"<x xmlns='urn:x'>{render(own, namespace=namespace)}</x>")[0]
    moved = element.tag.rpartition("}")[0].removeprefix("{")
    expected = parse(render(own))
    if namespace and namespace != XML and moved != XML:
        for each in expected.iter():
            of, _, name = each.tag.rpartition("}")
            if of.removeprefix("{") == moved:
                each.tag = qualified(namespace, name)
        assert flat(written) == flat(expected)


SAID = "<message xmlns='jabber:client' id='1' type='chat'><body>on</body></message>"


@pytest.mark.parametrize(
    "other",
    [
        SAID,
        SAID.replace("id='1'", "id='2'"),
        SAID.replace(" id='1'", ""),
        '<message type="chat" xmlns="jabber:client"><body >on</body ></message>',
        "<c:message xmlns:c='jabber:client' type='chat'><c:body>on</c:body></c:message>",
        SAID.replace("<b", "<origin-id xmlns='urn:xmpp:sid:0' id='3'/><b"),
    ],
)
def test_messages_that_differ_in_their_own_ids_alone_are_the_same(other: str) -> None:
    """slixmpp makes up a new id for each Message, and for its origin-id."""
    assert same_message(SAID, other)
    assert same_message(other, SAID)


@pytest.mark.parametrize(
    "other",
    [
        SAID.replace("on<", "off<"),
        SAID.replace("on<", "<"),
        SAID.replace("chat", "normal"),
        SAID.replace("<body>", "<body id='1'>"),
        SAID.replace("<body>", "<body xmlns='urn:x'>"),
        SAID.replace("</body>", "</body><body>on</body>"),
        SAID.replace("</body>", "</body> "),
        SAID.replace("</body>", "<b/></body>"),
        SAID.replace("</body></message>", "</body><thread/></message>"),
        "",
        "<message",
    ],
)
def test_messages_of_another_content_are_not_the_same(other: str) -> None:
    """An id may be used for only one message."""
    assert not same_message(SAID, other)
    assert not same_message(other, SAID)


def test_deep_messages_can_be_compared() -> None:
    """Just as they can be written."""
    deep = f"<message id='1'>{'<a>' * DEEP}{'</a>' * DEEP}</message>"
    assert same_message(deep, deep.replace("id='1'", "id='2'"))
