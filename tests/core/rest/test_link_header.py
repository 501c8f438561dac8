"""The Link header: what is written is read, and so are the examples of REST-*."""

from hypothesis import given
from hypothesis import strategies as st

from qos.core.rest.link_header import (
    LINKS_MAX,
    Link,
    fitting,
    read_links,
    render_links,
)

HREFS = st.text("abc/:?=&;,%.", max_size=20)
RELS = st.lists(st.text("abc-", min_size=1, max_size=9), min_size=1, max_size=3)
TYPES = st.text('abc/+;=, "\\<>', max_size=20)


@given(st.lists(st.builds(Link, HREFS, RELS.map(" ".join), TYPES), max_size=9))
def test_what_is_written_is_read(links: list[Link]) -> None:
    assert read_links(render_links(links)) == links


def test_values_are_quoted() -> None:
    """RFC 8288 §3."""
    shown = render_links([Link("/a", "x", "text/plain"), Link("/b", "y")])
    assert shown == '</a>; rel="x"; type="text/plain", </b>; rel="y"'


def test_a_link_has_a_title() -> None:
    shown = render_links([Link("/x", "y", "a/b", "z")])
    assert shown == '</x>; rel="y"; type="a/b"; title="z"'


def test_an_example_of_rest_is_read_without_quotes() -> None:
    header = (
        "<http://example.com/mytopic/messages/111>; rel=self,\n"
        " <http://example.com/mytopic>; rel=generator"
    )
    assert read_links(header) == [
        Link("http://example.com/mytopic/messages/111", "self"),
        Link("http://example.com/mytopic", "generator"),
    ]


def test_the_first_rel_counts_and_its_case_does_not() -> None:
    header = (
        r'<a>;title="q\"uoted, <b>"; REL="Create-Next  x";rel=y ;flag;type*=z junk,,<c>'
    )
    assert read_links(header) == [Link("a", "create-next x"), Link("c", "")]


def test_a_link_of_another_resource_is_not_ours() -> None:
    """RFC 8288 §3.2: its context is its anchor. An empty one is the answer itself."""
    header = '</a>; rel="create"; anchor="/other", </b>; rel="create"; anchor=""'
    assert read_links(header) == [Link("/b", "create")]


def test_what_is_no_link_ends_it() -> None:
    """An unclosed bracket is not guessed at."""
    assert read_links("<http://example.com/subscribers, rel=subscribers") == []
    assert read_links("") == []
    assert read_links('<a>; rel="x' + "y" * 50_000) == [Link("a", "")]


def test_the_number_of_links_is_bounded() -> None:
    assert len(read_links("<a>," * 1000)) == LINKS_MAX


def test_links_that_a_header_has_no_room_for_are_left_out() -> None:
    """All but the first, however long that is."""
    long, short = Link("/" + "a" * 1000, "b"), Link("/c", "d")
    assert fitting([], 1000) == []
    assert fitting([long, short, long], 1000) == [long]
    assert fitting([short, long, short], 1000) == [short, short]
    room = len(render_links([short, long]))
    assert fitting([short, long], room) == [short, long]
    assert fitting([short, long], room - 1) == [short]
