"""Headers about a body: what publishers may give, since it comes back in an answer."""

import time

import pytest

from qos.core.content_headers import CONTENT_TYPE_MAX, is_media_type, why_no_header

TYPE, CODING, LANGUAGE = (
    f"http_content${each}" for each in ("type", "encoding", "language")
)


@pytest.mark.parametrize(
    "value",
    [
        "text/plain",
        "application/vnd.acme+json;v=1",
        "text/plain; charset=utf-8;",
        'multipart/mixed ; boundary="a; b=\\"c" ;x=y',
        "a/b;;c=d",
        "*/*",
    ],
)
def test_media_types_are_those_of_rfc_9110(value: str) -> None:
    assert is_media_type(value)


@pytest.mark.parametrize(
    "value",
    [
        "text",
        "text/",
        "text/plain charset=utf-8",
        "text/plain, text/html",
        'text/plain; a="b',
        '</x>; rel="acknowledgement"',
        'text/plain; a="</x>"; rel="b" </y>; rel="acknowledgement"',
        "a/b; c = d",
    ],
)
def test_what_is_no_media_type_is_none(value: str) -> None:
    """A client that searches an answer for a link would find one in it."""
    assert not is_media_type(value)
    why = why_no_header(TYPE, value)
    assert why.startswith(
        "content-type: a media type is expected, such as text/plain, not"
    )


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (CODING, "gzip, br", ""),
        (CODING, "gzip br", "content-encoding: encodings are expected, such as gzip"),
        (CODING, '<x>; rel="self"', "content-encoding: encodings are expected"),
        (LANGUAGE, "de-CH-1996, mi", ""),
        (
            LANGUAGE,
            "german_",
            "content-language: language tags are expected, such as de",
        ),
        (LANGUAGE, '<x>; rel="self"', "content-language: language tags are expected"),
        ("http_link", '<x>; rel="up"', ""),
        ("http_link", "ü", f"link: at most {CONTENT_TYPE_MAX} characters of ASCII"),
        ("http_link", "x" * (CONTENT_TYPE_MAX + 1), "link: at most"),
        (TYPE, "", "content-type: at most"),
        # It is no header.
        (TYPE, 5, ""),
        ("other", "ü", ""),
    ],
)
def test_each_header_that_comes_back_has_its_form(
    key: str, value: object, why: str
) -> None:
    found = why_no_header(key, value)
    assert found.startswith(why) if why else not found


@pytest.mark.long  # it measures
@pytest.mark.parametrize("part", ["; ", " ;", ";a=b ", 'a="\\"', "a-", "a,"])
def test_no_value_takes_long_to_be_refused(part: str) -> None:
    """None can be matched in two ways."""
    value = ("a/b;" + part * CONTENT_TYPE_MAX)[: CONTENT_TYPE_MAX - 1] + "<"
    began = time.process_time()
    assert not is_media_type(value)
    assert why_no_header(LANGUAGE, value[4:])
    assert time.process_time() - began < 0.1
