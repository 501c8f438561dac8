"""The Atom link that a subscriber posts.

docs/rest-checklist.md U1 and U6.
"""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.queue.requests import Refusal
from qos.core.rest.push_links import (
    ATOM_LINK_BYTES_MAX,
    AtomLink,
    read_atom_link,
)

ATOM = "application/atom+xml"
NAMESPACE = "xmlns='http://www.w3.org/2005/Atom'"
ONCE = AtomLink("post-message-once", "http://foo.com/messages")
#: As S has it, with its typing error.
EXAMPLE = b'<atom:link rel="post-message-once" href="http://foo.com/messages"/>'


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (EXAMPLE, "applicatin/atom+xml"),
        (EXAMPLE, ATOM),
        (EXAMPLE.replace(b"atom:link", b"atom:link xmlns:atom='http://www.w3.org/2005/Atom'"), ATOM),
        (EXAMPLE.replace(b"/>", b"></atom:link>"), "application/xml"),
        (f"<link {NAMESPACE} rel='post-message-once' href='http://foo.com/messages'/>".encode(), "Application/Atom+XML; charset=utf-8"),
        (b"<?xml version='1.0'?>\n<link rel=' Post-Message-Once ' href=' http://foo.com/messages '/>", "text/xml"),
    ],
)  # fmt: skip
def test_an_atom_link_is_read_with_and_without_its_namespace(
    body: bytes, kind: str
) -> None:
    assert read_atom_link(body, kind) == ONCE


@pytest.mark.parametrize("kind", ["", "application/json", "text/html", "atom+xml"])
def test_another_media_type_is_unsupported(kind: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_atom_link(EXAMPLE, kind)
    assert refused.value.condition == "unsupported-media-type"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not well-formed"),
        (b"<link", "not well-formed"),
        (b"<atom:link xmlns:atom='a'", "not well-formed"),
        (b"<?xml version='1.0' encoding='wrong'?><link/>", "not well-formed"),
        (b"<x:link rel='a' href='b'/>", "not well-formed"),
        (b"<!DOCTYPE link [<!ENTITY a 'b'>]><link rel='&a;' href='b'/>", "DTD"),
        ("<link rel='a' href='b'/>".encode("utf-16"), "not UTF-8"),
        (b"<a rel='a' href='b'/>", "a link of Atom"),
        (b"<link xmlns='urn:x' rel='a' href='b'/>", "a link of Atom"),
        (b"<link href='b'/>", "its rel"),
        (b"<link rel='a b' href='b'/>", "its rel"),
        (b"<link rel='" + b"a" * 257 + b"' href='b'/>", "its rel"),
        (b"<link rel='a'/>", "its href"),
        (b"<link rel='a' href='" + b"a" * 2049 + b"'/>", "its href"),
        (EXAMPLE + b" " * ATOM_LINK_BYTES_MAX, "bytes"),
    ],
)
def test_what_is_no_atom_link_is_refused_with_the_reason(body: bytes, why: str) -> None:
    with pytest.raises(Refusal, match=why) as refused:
        read_atom_link(body, ATOM)
    assert refused.value.condition == "bad-request"


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda x: b"<link " + x))
def test_anything_is_a_link_or_is_refused(body: bytes) -> None:
    with contextlib.suppress(Refusal):
        read_atom_link(body, ATOM)
