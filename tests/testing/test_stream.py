"""A forwarded stanza keeps its meaning when only its start tag is rewritten."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.testing.stream import (
    CLIENT,
    COMPONENT,
    DEPTH_MAX,
    STREAMS,
    Broken,
    Closed,
    Opened,
    Stanza,
    StreamReader,
)

HEADER = (
    f"<?xml version='1.0'?><stream:stream xmlns='{CLIENT}' "
    f"xmlns:stream='{STREAMS}' to='localhost' version='1.0'>"
)


def read(text: str | bytes) -> list[Opened | Stanza | Closed | Broken]:
    return StreamReader().feed(text.encode() if isinstance(text, str) else text)


def one(text: str) -> Stanza:
    opened, stanza = read(text)
    assert isinstance(opened, Opened)
    assert isinstance(stanza, Stanza)
    return stanza


def received(stanza: Stanza, namespace: str = CLIENT) -> ET.Element:
    """The stanza as another client (or component) gets it on its own stream."""
    data = stanza.render(sender="a@localhost/1", namespace=namespace)
    root = (
        f"<s:stream xmlns='{namespace}' xmlns:s='{STREAMS}' xmlns:stream='{STREAMS}'>"
    )
    return ET.fromstring(root.encode() + data + b"</s:stream>")[0]  # noqa: S314


def broken(text: str | bytes) -> str:
    last = read(text)[-1]
    assert isinstance(last, Broken)
    return last.condition


def test_a_stanza_says_who_sent_it_and_keeps_every_byte_of_its_content() -> None:
    content = (
        "<body a = '>' >&lt;é&amp;<![CDATA[<x/>]]></body><x xmlns='urn:x'><y/></x>"
    )
    stanza = one(
        HEADER + "<message from='liar@localhost' to='b@localhost' "
        f"xml:lang='de' id='a&amp;\"b' >{content}</message>"
    )
    assert stanza.attributes["id"] == 'a&"b'
    assert stanza.payload == (CLIENT, "body")
    data = stanza.render(sender="a@localhost/<1>")
    assert content.encode() in data
    seen = received(stanza)
    assert seen.tag == f"{{{CLIENT}}}message"
    assert seen.attrib == {
        "from": "a@localhost/1",
        "to": "b@localhost",
        "id": 'a&"b',
        "{http://www.w3.org/XML/1998/namespace}lang": "de",
    }


@pytest.mark.parametrize(
    "text",
    ["<presence/>", "<presence />", "<presence></presence >", "<presence a='/>'\n/>"],
)
def test_an_empty_stanza_is_complete_with_its_own_end(text: str) -> None:
    assert [
        s.name for s in read(HEADER + text + text)[1:] if isinstance(s, Stanza)
    ] == [
        "presence",
        "presence",
    ]


def test_a_prefix_declared_on_the_root_is_declared_again() -> None:
    stanza = one(
        f"<stream:stream xmlns='{CLIENT}' xmlns:stream='{STREAMS}' "
        "xmlns:q='urn:xmpp:qos' xmlns:z='urn:z&amp;z' xmlns:t='urn:t' xmlns:unused='urn:unused'>"
        "<iq t:a='1'><q:assured><z:x/></q:assured></iq>"
    )
    seen = received(stanza)
    assert seen[0].tag == "{urn:xmpp:qos}assured"
    assert seen[0][0].tag == "{urn:z&z}x"
    assert seen.attrib["{urn:t}a"] == "1"
    assert b"unused" not in stanza.render(sender="a@localhost/1")


def test_a_prefix_declared_on_the_stanza_wins_over_the_roots() -> None:
    stanza = one(
        f"<stream:stream xmlns='{CLIENT}' xmlns:stream='{STREAMS}' xmlns:q='urn:root'>"
        "<iq xmlns:q='urn:stanza'><q:x/></iq>"
    )
    assert received(stanza)[0].tag == "{urn:stanza}x"


def test_the_prefix_stream_may_mean_something_else() -> None:
    stanza = one(
        f"<s:stream xmlns='{CLIENT}' xmlns:s='{STREAMS}' xmlns:stream='urn:other'>"
        "<iq><stream:x/><s:y/></iq>"
    )
    assert [child.tag for child in received(stanza)] == [
        "{urn:other}x",
        f"{{{STREAMS}}}y",
    ]


@pytest.mark.parametrize("namespace", [CLIENT, COMPONENT])
@pytest.mark.parametrize(
    "root",
    [
        f"<stream xmlns='{STREAMS}' xmlns:c='{CLIENT}'>",
        f"<s:stream xmlns:s='{STREAMS}' xmlns:c='{CLIENT}'>",
    ],
)
def test_a_stanza_with_a_prefix_keeps_its_meaning(root: str, namespace: str) -> None:
    """RFC 6120 §4.8.5 permits it: no default namespace, or another one."""
    stanza = one(
        root + "<c:message to='b@localhost'><c:body>x</c:body><y/></c:message>"
    )
    seen = received(stanza, namespace)
    assert seen.tag == f"{{{namespace}}}message"
    assert seen[0].tag == f"{{{namespace}}}body"
    assert seen[1].tag == (f"{{{STREAMS}}}y" if "<stream " in root else "y")


def test_content_crosses_to_a_components_namespace_and_back() -> None:
    inside = "<message xmlns='jabber:client'><body>x</body></message>"
    stanza = one(HEADER + f"<iq><received/><a xmlns='urn:xmpp:qos'>{inside}</a></iq>")
    seen = received(stanza, COMPONENT)
    assert seen.tag == f"{{{COMPONENT}}}iq"
    assert seen[0].tag == f"{{{COMPONENT}}}received"
    # Named explicitly, below another namespace: this is payload.
    assert seen[1][0].tag == f"{{{CLIENT}}}message"
    back = one(
        f"<stream:stream xmlns='{COMPONENT}' xmlns:stream='{STREAMS}'>"
        "<iq from='q.localhost'><received/></iq>"
    )
    assert received(back)[0].tag == f"{{{CLIENT}}}received"


def test_a_namespace_said_on_the_stanza_itself_is_the_streams() -> None:
    stanza = one(
        f"<stream:stream xmlns='{COMPONENT}' xmlns:stream='{STREAMS}'>"
        f"<iq xmlns='{CLIENT}'><received/></iq>"
    )
    assert received(stanza, COMPONENT)[0].tag == f"{{{COMPONENT}}}received"


def test_rebinding_a_prefix_never_makes_two_attributes_one() -> None:
    """Otherwise a client could break the stream of a component with a well-formed
    stanza.
    """
    both = f"xmlns:c='{CLIENT}' xmlns:k='{COMPONENT}'"
    twice = "<x c:a='1' k:a='2'/>"
    assert broken(f"{HEADER}<c:iq {both}>{twice}</c:iq>") == "bad-format"
    assert received(one(f"{HEADER}<iq {both}>{twice}</iq>"), COMPONENT)[0].attrib == {
        f"{{{CLIENT}}}a": "1",
        f"{{{COMPONENT}}}a": "2",
    }


PREFIXES = ["", "a:", "b:", "stream:"]
URIS = [CLIENT, COMPONENT, STREAMS, "urn:a", "urn:b&amp;c"]
declarations = st.dictionaries(st.sampled_from(PREFIXES), st.sampled_from(URIS))


def write(prefix: str, name: str, declared: dict[str, str], content: str) -> str:
    written = "".join(
        f" xmlns{':' if key else ''}{key[:-1]}='{uri}'" for key, uri in declared.items()
    )
    return f"<{prefix}{name}{written} {prefix}x='>'>{content}</{prefix}{name}>"


elements = st.recursive(
    st.sampled_from(["", "text", "&lt;", "<![CDATA[<a:x>]]>"]),
    lambda content: st.builds(
        write,
        st.sampled_from(PREFIXES),
        st.sampled_from(["body", "x"]),
        declarations,
        st.lists(content, max_size=3).map("".join),
    ),
    max_leaves=6,
)


@given(
    declarations,
    st.builds(write, st.sampled_from(PREFIXES), st.just("iq"), declarations, elements),
)
def test_whatever_the_namespaces_another_client_sees_what_was_sent(
    on_root: dict[str, str], text: str
) -> None:
    root = write("s:", "stream", {"s:": STREAMS} | on_root, "|").partition("|")[0]
    try:
        sent = ET.fromstring(root + text + "</s:stream>")[0]  # noqa: S314
    except ET.ParseError:
        assert broken(root + text) == "not-well-formed"
        return
    stanza = read(root + text)[-1]
    if isinstance(stanza, Broken):
        assert stanza.condition == "bad-format"
        return
    assert isinstance(stanza, Stanza)
    if stanza.namespace not in (CLIENT, COMPONENT):
        return  # the session refuses it
    seen = received(stanza, stanza.namespace)
    assert seen.attrib.pop("from") == "a@localhost/1"
    assert ET.canonicalize(ET.tostring(seen)) == ET.canonicalize(ET.tostring(sent))


@given(st.data())
def test_it_does_not_matter_how_the_bytes_are_cut(data: st.DataObject) -> None:
    text = (
        HEADER + " \n<iq id='ä' to=\"b\"><x xmlns='urn:x' a='>'>é</x></iq>\t<presence/>"
        "<message><body>]]&gt;</body></message>  <presence></presence></stream:stream>"
    ).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    reader = StreamReader()
    events = [
        event
        for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)
        for event in reader.feed(text[begin:end])
    ]

    def seen(event: Opened | Stanza | Closed | Broken) -> object:
        return event.render(sender="a") if isinstance(event, Stanza) else event

    assert [seen(event) for event in events] == [seen(event) for event in read(text)]
    assert [type(event) for event in events] == [Opened, *[Stanza] * 4, Closed]


def test_a_byte_order_mark_does_not_shift_what_is_cut_out() -> None:
    _, stanza = read("\ufeff" + HEADER + "<iq><x/></iq>")
    assert isinstance(stanza, Stanza)
    assert stanza.render(sender="a") == b'<iq from="a"><x/></iq>'


def test_white_space_between_stanzas_is_not_kept() -> None:
    reader = StreamReader(stanza_bytes_max=1000)
    assert len(reader.feed(HEADER.encode())) == 1
    for _ in range(100):
        assert reader.feed(b" " * 100) == []
    assert len(reader.feed(b"<presence/>")) == 1


def test_what_came_before_a_fault_still_counts() -> None:
    opened, stanza, fault = read(HEADER + "<presence/><iq></message>")
    assert isinstance(opened, Opened)
    assert isinstance(stanza, Stanza)
    assert fault == Broken("not-well-formed")


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("<!DOCTYPE x [<!ENTITY a 'b'>]>" + HEADER, "restricted-xml"),
        ("<!DOCTYPE x SYSTEM 'file:///etc/passwd'>" + HEADER, "restricted-xml"),
        (HEADER + "<iq><!-- x --></iq>", "restricted-xml"),
        (HEADER + "<iq><?php x ?></iq>", "restricted-xml"),
        (HEADER + "<iq>&nbsp;</iq>", "restricted-xml"),
        (HEADER + "<iq><q:x/></iq>", "not-well-formed"),
        (HEADER + "<iq a='1' a='2'/>", "not-well-formed"),
        (HEADER + "<iq a='<'/>", "not-well-formed"),
        (HEADER + "<iq>&#0;</iq>", "not-well-formed"),
        (HEADER + "hello", "bad-format"),
        (HEADER + "<iq/>hello<iq/>", "bad-format"),
        (HEADER + "<![CDATA[x]]><iq/>", "bad-format"),
        (HEADER + "<a>" * DEPTH_MAX, "policy-violation"),
        ("<stream xmlns='jabber:client'>", "invalid-namespace"),
        ("GET / HTTP/1.1\r\n\r\n", "not-well-formed"),
        (HEADER.encode() + b"<iq>\xff</iq>", "not-well-formed"),
        (HEADER.encode("utf-16"), "unsupported-encoding"),
        (HEADER.encode("utf-16-le"), "unsupported-encoding"),
        (HEADER.encode("utf-16-be"), "unsupported-encoding"),
        (b"\x16\x03\x01", "not-well-formed"),
    ],
)
def test_bad_input_is_named(text: str | bytes, condition: str) -> None:
    assert broken(text) == condition


@pytest.mark.parametrize("chunk", [100, 1000, 100_000])
@pytest.mark.parametrize(
    "text", ["<iq><x>{}</x></iq>", "<iq a='{}'/>", "<{}", "<iq>" + "<x/>{}</iq>"]
)
def test_a_stanza_over_the_limit_is_refused_before_it_is_all_there(
    text: str, chunk: int
) -> None:
    reader = StreamReader(stanza_bytes_max=5000)
    data = (HEADER + text.format("x" * 50_000)).encode()
    fed = 0
    while True:
        events = reader.feed(data[fed : fed + chunk])
        fed += chunk
        if events and isinstance(events[-1], Broken):
            break
    assert events[-1] == Broken("policy-violation")
    assert fed <= 5000 + len(HEADER) + 2 * chunk


def test_a_stanza_of_just_the_limit_passes() -> None:
    text = "<iq>" + "x" * 91 + "</iq>"
    assert len(StreamReader(stanza_bytes_max=200).feed(HEADER.encode())) == 1
    for size, kind in ((100, Stanza), (99, Broken)):
        reader = StreamReader(stanza_bytes_max=len(HEADER))
        reader.feed(HEADER.encode())
        reader._stanza_bytes_max = size
        assert isinstance(reader.feed(text.encode())[0], kind)


def test_a_tag_that_comes_in_pieces_is_read_as_soon_as_it_is_whole() -> None:
    """Expat 2.6 defers that, and a peer that waits for the answer would wait for ever."""
    reader = StreamReader()
    data = (HEADER + "<iq a='" + "x" * 3000 + "'/>").encode()
    events = [
        event
        for begin in range(0, len(data), 7)
        for event in reader.feed(data[begin : begin + 7])
    ]
    assert [type(event) for event in events] == [Opened, Stanza]


def test_the_tree_is_that_of_a_client() -> None:
    stanza = one(
        f"<stream:stream xmlns='{COMPONENT}' xmlns:stream='{STREAMS}' xmlns:q='urn:q'>"
        "<iq><q:x/><y>t</y></iq>"
    )
    assert [child.tag for child in stanza.tree] == ["{urn:q}x", f"{{{CLIENT}}}y"]
