"""One spelling for each JID."""

import pytest

from qos.jids import normal_jid


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("bee@example.org", "bee@example.org"),
        ("Bee@Example.ORG/Desk", "bee@example.org/Desk"),
        ("bee@example.org.", "bee@example.org"),
        ("bee@example.org./1", "bee@example.org/1"),
        ("bee@EXAMPLE.org./a.@b/c.", "bee@example.org/a.@b/c."),
        ("example.org.", "example.org"),
        ("bee@example\u3002org\uff0e", "bee@example.org"),
        ("bee@xn--bcher-kva.example", "bee@bücher.example"),
        ("bee@XN--BCHER-KVA.example.", "bee@bücher.example"),
        ("bee@BÜCHER.example", "bee@bücher.example"),
        ("\uff22ee@example.org", "bee@example.org"),
        ("bee@[::1]", "bee@[::1]"),
    ],
)
def test_two_spellings_of_one_jid_are_one(text: str, normal: str) -> None:
    """RFC 7622 §3.2 strips the dot before it compares; slixmpp does not."""
    assert normal_jid(text) == normal
    assert normal_jid(normal) == normal


@pytest.mark.parametrize(
    "text",
    ["", ".", "a@b@c", "bee@", "@example.org", "bee@.", "bee@a..", "bee@xn--\x00"],
)
def test_what_is_no_jid_is_refused(text: str) -> None:
    """With its text in the error."""
    with pytest.raises(ValueError, match="is not a JID"):
        normal_jid(text)
