"""JSON, texts and bodies in payloads: what was put in comes out."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qos.core.contents import (
    JSON_TYPE,
    TEXT_TYPE,
    Json,
    content_of,
    is_json,
    json_payload,
    json_payload_of,
    read_json,
    text_payload,
    wrap,
)
from qos.errors import InvalidArgument
from qos.xml_text import is_legal

#: What JSON can carry.
VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@example("\uffff")
@given(VALUES)
def test_a_value_comes_back(value: Json) -> None:
    """Also characters that XML cannot carry: JSON can escape them."""
    content, media_type = content_of(json_payload(value)) or (b"", "")
    assert media_type == JSON_TYPE
    assert read_json(content) == value


@given(st.text().filter(is_legal))
def test_a_text_comes_back(value: str) -> None:
    assert content_of(text_payload(value)) == (value.encode(), TEXT_TYPE)


def test_what_cannot_be_carried_is_refused() -> None:
    """By the name of the argument, and without the content."""
    with pytest.raises(InvalidArgument, match="json"):
        json_payload({"a": {1, 2}})  # type: ignore[dict-item]  # a set
    with pytest.raises(InvalidArgument, match="json"):
        json_payload(float("nan"))
    for wrong in ("a\0b", 7):
        with pytest.raises(InvalidArgument, match="text"):
            text_payload(wrong)
    with pytest.raises(ValueError, match=r"U\+0000"):
        json_payload_of('"\0"')


@pytest.mark.parametrize("written", ["{", "", "NaN", "[" * 100_000, b"\xff"])
def test_what_is_no_json_is_no_value(written: str | bytes) -> None:
    """Also what the json module of Python takes for it, or cannot follow."""
    with pytest.raises(ValueError):  # noqa: PT011 - of several kinds
        read_json(written)


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "<a xmlns='u'/>",
        "<a xmlns='urn:xmpp:json:0'>1</a>",
        "<json xmlns='urn:xmpp:json:0'><b/></json>",
        "<a xmlns='u' b='xmpp-qos:text:0'/>",
    ],
)
def test_another_element_has_no_content(payload: str) -> None:
    """It is XML of the application's own."""
    assert content_of(payload) is None


def test_a_body_of_http_is_a_content() -> None:
    assert content_of(wrap(b"\0\1", "image/x")) == (b"\0\1", "image/x")


@pytest.mark.parametrize(
    ("media_type", "expected"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/geo+json", True),
        ("text/json", False),
        ("", False),
    ],
)
def test_json_is_told_by_its_type(media_type: str, expected: bool) -> None:
    assert is_json(media_type) is expected
