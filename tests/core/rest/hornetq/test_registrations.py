"""The document by which a client of HornetQ asks for push; row H14."""

from base64 import b64decode

import pytest

from qos.core.queue.requests import Refusal
from qos.core.rest.hornetq.registrations import read_registration, render
from qos.core.rest.push_links import AtomLink

XML = "application/xml"


def document(inner: str) -> bytes:
    return f"<push-registration>{inner}</push-registration>".encode()


LINK = "<link rel='destination' href='https://x.example/q'/>"
AUTH = (
    "<authentication><basic-auth><username>shop</username>"
    "<password>geheim</password></basic-auth></authentication>"
)


def test_a_document_asks_for_push() -> None:
    """What is as it is anyway is accepted."""
    inner = (
        f"<durable>true</durable><maxRetries>5</maxRetries>{LINK}{AUTH}"
        "<selector><![CDATA[a > 1]]></selector><sessionCount>1</sessionCount>"
        "<retryWaitMillis>9</retryWaitMillis><disableOnFailure>true</disableOnFailure>"
        "<header name='X-From'> here </header>"
    )
    found = read_registration(document(inner), f"{XML}; charset=utf-8")
    assert found.link == AtomLink("destination", "https://x.example/q")
    kind, _, pair = found.authorization.partition(" ")
    assert (kind, b64decode(pair)) == ("Basic", b"shop:geheim")
    assert found.selector == "a > 1"
    assert found.headers == {"x-from": "here"}
    shown = render(found.link, found.selector)
    assert read_registration(shown, XML) == type(found)(found.link, "a > 1", "", {})
    assert b"selector" not in render(found.link, "")


@pytest.mark.parametrize(
    ("inner", "says"),
    [
        ("", "<link rel='…' href='…'/> is expected"),
        (LINK + LINK, "<link> is not possible here"),
        ("<link rel='x' href='https://x/' method='PUT'/>", "pushed by POST"),
        ("<link rel='template' href='https://x/'/>", "has {id} once"),
        ("<link href='https://x/'/>", "its rel says how"),
        (f"{LINK}<sessionCount>2</sessionCount>", "one after the other"),
        (f"{LINK}<selector><![CDATA[a > ]]></selector>", "selector"),
        (f"{LINK}<header>b</header>", "header: '' cannot be set"),
        (f"{LINK}<header name='Cookie'>b</header>", "'cookie' cannot be set"),
        (f"{LINK}<header name='Proxy-A'>b</header>", "'proxy-a' cannot be set"),
        (f"{LINK}<header name='a'>ä</header>", "header a: at most 1024"),
        (f"{LINK}<header name='a'>{'b' * 1025}</header>", "header a: at most 1024"),
        (
            LINK + "".join(f"<header name='a{n}'>b</header>" for n in range(17)),
            "at most 16 headers",
        ),
        (f"{LINK}<authentication><digest-auth/></authentication>", "<basic-auth>"),
        (f"{LINK}<", "not well-formed"),
        (f"{LINK}<!DOCTYPE a>", "DTD"),
        (" " * 16_385, "more than 16384 bytes"),
    ],
)
def test_what_is_not_possible_is_refused(inner: str, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        read_registration(document(inner), XML)


def test_another_document_is_none() -> None:
    with pytest.raises(Refusal, match="<push-registration> is expected"):
        read_registration(b"<x/>", XML)
    with pytest.raises(Refusal, match="application/xml is expected"):
        read_registration(document(LINK), "text/plain")
