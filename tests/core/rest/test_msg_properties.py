"""Msg-Properties: typed values, there and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.queue.properties import Properties, header_size
from qos.core.queue.requests import Refusal
from qos.core.rest.msg_properties import read_properties, render_properties
from qos.xml_text import is_legal

NAMES = st.from_regex(r"[A-Za-z_$*][A-Za-z0-9_$.*-]{0,20}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).filter(is_legal)
VALUES = st.one_of(
    TEXTS,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(10**6), 10**6).map(lambda number: number / 1000),
)


@given(
    st.dictionaries(
        NAMES.filter(lambda name: not name.startswith("xml.")), VALUES, max_size=9
    )
)
def test_what_is_written_is_read_with_its_types(properties: Properties) -> None:
    shown = render_properties(properties)
    assert shown.isascii()
    assert shown.isprintable()
    found = read_properties(shown)
    assert found == properties
    assert {name: type(value) for name, value in found.items()} == {
        name: type(value) for name, value in properties.items()
    }


@pytest.mark.parametrize(
    ("header", "properties"),
    [
        ("", {}),
        (" a=1,\tb=-2.50 ", {"a": 1, "b": -2.5}),
        (r'a="x\"\\y", b=token/1, c, d=?0, e=?1', {"a": 'x"\\y', "b": "token/1", "c": True, "d": False, "e": True}),
        ('n=%"J%c3%bcrgen"', {"n": "Jürgen"}),
        ('a="1e-09";type=double, b="9007199254740993";type=long', {"a": 1e-9, "b": 9007199254740993}),
        ("JMSType=x, $a.b-c*=1, a=2, a=3", {"JMSType": "x", "$a.b-c*": 1, "a": 3}),
    ],
)  # fmt: skip
def test_a_dictionary_is_read(header: str, properties: Properties) -> None:
    """The last of two members with one name counts (RFC 9651 §4.2.2)."""
    assert read_properties(header) == properties


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (
            "=1",
            "NAME=VALUE is expected at character 1, such as colour=red or n=5, not '=1'",
        ),
        ("a=1, 7=1", "at character 5, such as colour=red or n=5, not '7=1'"),
        ("a=1,", "nothing follows the comma at character 4"),
        ("b=2, a=hülle", "at character 5, such as colour=red or n=5, not 'a=hülle'"),
        ("a=(1 2)", "at character 1"),
        ("a=:Zm9v:", "at character 1"),
        ("a=1 b=2", "at character 1"),
        ('a="\x00"', "at character 1"),
        ("a=1234567890123456", "at character 1"),
        ('n=%"%ff"', "'n' has a value that is not of its type"),
        ('n="x";type=double', "'n' has a value that is not of its type"),
        ('n="1.5";type=long', "'n' has a value that is not of its type"),
        ('n="nan";type=double', "'n' is not a finite number"),
        ("xml.a=1", "names with xml. are read from the payload"),
        (", ".join(f"a{n}" for n in range(65)), "65 properties, over the limit of 64"),
    ],
)
def test_another_header_is_refused_with_where(header: str, says: str) -> None:
    with pytest.raises(Refusal, match=r"^Msg-Properties: ") as caught:
        read_properties(header)
    assert says in str(caught.value)
    assert caught.value.condition == "bad-request"


def test_a_name_that_cannot_stand_in_a_header_is_left_out() -> None:
    """XMPP clients may choose any name."""
    assert render_properties({"größe": 1, "a b": 2, "": 3, "c": 4}) == "c=4"


def test_a_lone_surrogate_does_no_harm() -> None:
    assert render_properties({"a": "\ud800"}) == 'a=%"?"'


@given(st.dictionaries(NAMES, st.one_of(VALUES, st.text('"\\%ü'))))
def test_the_size_that_is_checked_is_no_less_than_that_of_the_header(
    properties: Properties,
) -> None:
    """Or an item could have properties that no client can read."""
    checked = header_size(properties)
    assert len(render_properties(properties)) <= checked
