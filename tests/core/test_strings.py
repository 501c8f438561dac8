"""The parts of a JID, and that it is split in one place."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from qos.core.strings import bare, domain_of, own_servers, resource_of, user_of

TOP = Path(__file__).parents[2]

#: They read a text that may be no JID, or that is none: a path, an XPath, a name of SASL.
MAY_SPLIT_AT_AN_AT = {
    "plugins/xep_qos/takers.py",
    "qos/core/strings.py",
    "qos/jids.py",
    "qos/testing/ejabberd.py",
    "qos/testing/sasl.py",
}
MAY_SPLIT_A_JID_AT_A_SLASH = {"qos/core/strings.py", "qos/jids.py"}

#: The names that variables and attributes with a JID have.
OF_A_JID = frozenset(
    ["account", "jid", "own", "requester", "remembered", "sender", "source", "to"]
)


@pytest.mark.parametrize(
    ("jid", "account", "user", "domain", "resource"),
    [
        ("bee@example.org/desk", "bee@example.org", "bee", "example.org", "desk"),
        ("bee@example.org", "bee@example.org", "bee", "example.org", ""),
        ("example.org", "example.org", "", "example.org", ""),
        ("example.org/x@y/z", "example.org", "", "example.org", "x@y/z"),
        ("bee@example.org/a/b", "bee@example.org", "bee", "example.org", "a/b"),
        ("", "", "", "", ""),
    ],
)
def test_a_jid_has_four_parts(
    jid: str, account: str, user: str, domain: str, resource: str
) -> None:
    """RFC 7622 §3.1: the first slash ends the domain, whatever is behind it."""
    parts = (bare(jid), user_of(jid), domain_of(jid), resource_of(jid))
    assert parts == (account, user, domain, resource)


def test_our_server_answers_by_three_names() -> None:
    """RFC 6120 §8.1.2.1: without a sender, it is from our account."""
    own = own_servers("bee@example.org/desk")
    assert own == {"", "bee@example.org", "example.org"}


def test_the_parts_of_a_jid_are_remembered() -> None:
    """On the way of one item the same JID is asked for its account 50 times."""
    jid = "bee@example.org/".ljust(64, "x")
    assert bare(jid) is bare(jid)
    assert domain_of(jid) is domain_of(jid)


def splits(source: str) -> list[tuple[int, str, str]]:
    """The splits at an @ or a slash in a module: line, separator, what is split."""
    hits: list[tuple[int, str, str]] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(
                    value=value, attr="partition" | "rpartition" | "split" | "rsplit"
                ),
                args=[ast.Constant(value="@" | "/" as separator), *_],
            ):
                hits.append((node.lineno, separator, ast.unparse(value)))
    return hits


def split_by_hand(path: str, source: str) -> list[str]:
    """The JIDs that a shipped module splits itself."""
    return [
        f"{path}:{line}: {text} at {separator}"
        for line, separator, text in splits(source)
        if (separator == "@" and path not in MAY_SPLIT_AT_AN_AT)
        or (
            separator == "/"
            and not OF_A_JID.isdisjoint(re.findall(r"\w+", text))
            and path not in MAY_SPLIT_A_JID_AT_A_SLASH
        )
    ]


def test_a_jid_is_split_in_one_place() -> None:
    """Two ways to split one would be two opinions of whose a message is."""
    sources = [*(TOP / "qos").rglob("*.py"), *(TOP / "plugins").rglob("*.py")]
    by_hand = [
        split
        for source in sources
        for split in split_by_hand(
            source.relative_to(TOP).as_posix(), source.read_text(encoding="utf-8")
        )
    ]
    assert by_hand == []


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("account = jid.partition('/')[0]", 1),
        ("account = str(self.jid).split('/', 1)[0]", 1),
        ("domain = account.rpartition('@')[2]", 1),
        ("domain = self.login.jid.partition('/')[0].rpartition('@')[2]", 2),
        ("kind = media_type.partition('/')[0]", 0),
    ],
)
def test_a_split_by_hand_would_be_found(line: str, count: int) -> None:
    """What the test above rests on."""
    assert len(split_by_hand("qos/some.py", line)) == count
