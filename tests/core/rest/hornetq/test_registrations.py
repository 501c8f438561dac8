"""The document by which a client of HornetQ asks for push; docs/rest-checklist.md H14."""

import contextlib
import re
from base64 import b64decode, b64encode
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qos.core.queue.push import PushSubscriber
from qos.core.queue.requests import Refusal
from qos.core.rest.hornetq.registrations import (
    Registration,
    read_registration,
    render,
)
from qos.core.rest.push_links import AtomLink

XML = "application/xml"


def document(inner: str) -> bytes:
    return f"<push-registration>{inner}</push-registration>".encode()


LINK = "<link rel='destination' href='https://x.example/q'/>"


def login(kind: str, user: str = "shop", password: str = "geheim") -> str:  # noqa: S107
    return (
        f"<authentication><{kind}><username>{user}</username>"
        f"<password>{password}</password></{kind}></authentication>"
    )


def registration(**given: Any) -> Registration:
    """As it is if the document has a link only."""
    found: dict[str, Any] = {
        "link": AtomLink("destination", "https://x.example/q"),
        "method": "POST",
        "content_type": "",
        "selector": "",
        "authorization": "",
        "digest": "",
        "headers": {},
        "enabled": True,
        "durable": False,
        "sessions": 1,
        "max_retries": 10,
        "retry_wait_s": 1.0,
        "disable_on_failure": None,
    }
    return Registration(**found | given)


def subscriber(asked: Registration, **given: Any) -> PushSubscriber:
    names = [name for name in Registration.__slots__ if name != "link"]
    values = {name: getattr(asked, name) for name in names}
    return PushSubscriber(
        subscriber_id="id",
        node="orders",
        account="alice@example.org",
        base="",
        created_at=0.0,
        rel=asked.link.rel,
        href=asked.link.href,
        **values | given,
    )


def test_what_is_left_out_is_as_in_hornetq() -> None:
    assert read_registration(document(LINK), XML) == registration()
    topic = f"<push-topic-registration>{LINK}</push-topic-registration>".encode()
    assert read_registration(topic, "text/xml") == registration()
    # As in the manual's example.
    found = read_registration(document("<link href='https://x.example/q'/>"), XML)
    assert found.link == AtomLink("push", "https://x.example/q")


def test_a_document_says_how_to_push() -> None:
    link = "<link rel='push' href='https://x/' type='text/plain' method='put'/>"
    inner = (
        f"<durable>true</durable><maxRetries>0</maxRetries>{link}"
        "<selector><![CDATA[a > 1]]></selector><sessionCount> 16 </sessionCount>"
        "<retryWaitMillis>1500</retryWaitMillis><enabled>false</enabled>"
        "<disableOnFailure>true</disableOnFailure>"
        "<header name='X-From'> here </header><header name='X-To'>there</header>"
    )
    found = read_registration(document(inner), f"{XML}; charset=utf-8")
    assert found == registration(
        link=AtomLink("push", "https://x/"),
        method="PUT",
        content_type="text/plain",
        selector="a > 1",
        headers={"x-from": "here", "x-to": "there"},
        enabled=False,
        durable=True,
        sessions=16,
        max_retries=0,
        retry_wait_s=1.5,
        disable_on_failure=True,
    )


def test_it_has_a_login_by_basic_or_digest_authentication() -> None:
    """HornetQ's manual and its code have two names for the latter."""
    found = read_registration(document(LINK + login("basic-auth")), XML)
    kind, _, pair = found.authorization.partition(" ")
    assert (kind, b64decode(pair), found.digest) == ("Basic", b"shop:geheim", "")
    for name in ("digest-auth", "digest"):
        found = read_registration(document(LINK + login(name, "shop", "a:ä")), XML)
        assert b64decode(found.digest).decode() == "shop:a:ä"
        assert found.authorization == ""


def test_no_login_is_in_the_text_of_a_subscriber() -> None:
    """Such as in a log."""
    pair = b64encode(b"shop:geheim").decode()
    for login in ({"digest": pair}, {"authorization": f"Basic {pair}"}):
        assert pair not in repr(subscriber(registration(), **login))


def test_what_is_shown_can_be_posted_again() -> None:
    for asked in (
        registration(),
        registration(
            link=AtomLink("push", "https://x/?a&b"),
            method="PUT",
            content_type="a/b",
            selector="a <> 'ä'",
            headers={"x-a": "<b>", "x-b": "c"},
            enabled=False,
            durable=True,
            sessions=3,
            max_retries=4,
            retry_wait_s=0.015,
            disable_on_failure=False,
        ),
    ):
        for topic in (False, True):
            shown = render(subscriber(asked), topic=topic)
            assert read_registration(shown, XML) == asked
            assert (b"<push-topic-registration " in shown) == topic


def test_the_user_of_a_login_is_shown_and_its_password_is_not() -> None:
    pair = b64encode(b"shop:geheim").decode()
    for kind, its in (
        ("basic-auth", {"authorization": f"Basic {pair}"}),
        ("digest-auth", {"digest": pair}),
    ):
        shown = render(subscriber(registration(), **its)).decode()
        user = f"<{kind}><username>shop</username></{kind}>"
        assert f"<authentication>{user}</authentication>" in shown
        assert "geheim" not in shown
        assert pair not in shown
    for other in ("Bearer 1", "Basic", "Basic !", "Basic YQ==", "Basic /w=="):
        shown = render(subscriber(registration(), authorization=other)).decode()
        assert "authentication" not in shown
    # A subscriber of REST-* may have any.
    pair = b64encode(b"a\0b:c").decode()
    shown = render(subscriber(registration(), authorization=f"Basic {pair}")).decode()
    assert "<username>a?b</username>" in shown


def test_it_is_shown_why_a_subscriber_is_disabled() -> None:
    """Whatever its target has said."""
    its = subscriber(registration(), enabled=False, reason="no\0\x1f<ä>")
    root = ET.fromstring(render(its))  # noqa: S314 - ours
    assert root.get("id") == "id"
    assert root.findtext("enabled") == "false"
    assert root.findtext("reason") == "no??<ä>"


PARTS = st.sampled_from(
    [
        *(
            "<link href='https://x/'",
            " rel='template'",
            " method='PUT'",
            " a='b'",
            "/>",
        ),
        *("<maxRetries>", "</maxRetries>", "9", "true", "<durable>", "</durable>"),
        *("<authentication>", "<digest-auth>", "<username>", "</username>", "&amp;"),
        *(
            "<password>",
            "</password>",
            "</digest-auth>",
            "</authentication>",
            "<!-- -->",
        ),
        *("<header name='a'>", "</header>", "<x:link xmlns:x='y'/>", "&#9;", "\0", "ä"),
    ]
)


@given(st.lists(PARTS, max_size=20).map("".join) | st.text(max_size=40))
def test_anything_is_a_registration_or_is_refused(inner: str) -> None:
    with contextlib.suppress(Refusal):
        asked = read_registration(document(inner), XML)
        ET.fromstring(render(subscriber(asked)))  # noqa: S314 - ours


@given(
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1).map(
        str.lower
    ),
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1),
)
def test_any_link_is_shown_as_it_was_read(rel: str, href: str) -> None:
    asked = registration(link=AtomLink(f"x-{rel}", href))
    assert read_registration(render(subscriber(asked)), XML) == asked


@pytest.mark.parametrize(
    ("inner", "says"),
    [
        ("", "<link rel='…' href='…'/> is expected"),
        (LINK + LINK, "<link> is there twice"),
        ("<link rel='x' href='https://x/' method='GET'/>", "POST or PUT, not 'GET'"),
        (
            "<link rel='post-message-once' href='https://x/' method='PUT'/>",
            "a one-off link takes a POST only",
        ),
        ("<link href='https://x/' class-name='a.B'/>", "link: 'class-name'"),
        ("<link href='https://x/' type='\xe4'/>", "link: a type has at most 1024"),
        (f"<link href='https://x/' type='{'a' * 1025}'/>", "link: a type has"),
        ("<link rel='template' href='https://x/'/>", "has {id} once"),
        ("<link rel='a b' href='https://x/'/>", "its rel says how"),
        ("<link/>", "its href is a URL"),
        (f"{LINK}<topic>a</topic>", "<topic> is not possible here"),
        *(
            (f"{LINK}<{name}>{value}</{name}>", f"{name}: {says}, not '{value}'")
            for name, says, values in [
                ("sessionCount", "a whole number from 1 to 16 is expected", "0 17 a"),
                (
                    "maxRetries",
                    "a whole number from 0 to 100 is expected",
                    "-1 101 1.5 \u0661",
                ),
                (
                    "retryWaitMillis",
                    "a whole number from 0 to 300000 is expected",
                    "300001 1e3",
                ),
                *(
                    (name, "true or false is expected", "yes 1 TRUE")
                    for name in ("durable", "enabled", "disableOnFailure")
                ),
            ]
            for value in values.split()
        ),
        (f"{LINK}<maxRetries/>", "from 0 to 100 is expected, not ''"),
        *(
            (f"{LINK}<{name}>1</{name}><{name}>1</{name}>", f"<{name}> is there twice")
            for name in ("maxRetries", "durable", "selector", "authentication")
        ),
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
        *(
            (f"{LINK}<authentication>{inner}</authentication>", "<basic-auth> or")
            for inner in (
                "",
                "<digest-auth/>",
                "<digest-auth><username>a</username></digest-auth>",
                "<token-auth/>",
                "<basic-auth/><digest-auth/>",
            )
        ),
        (LINK + login("basic-auth", "a:b"), "this username is not possible"),
        (LINK + login("digest-auth", "\xe4"), "this username is not possible"),
        (f"{LINK}<", "not well-formed"),
        (f"{LINK}<!DOCTYPE a>", "DTD"),
        (" " * 16_385, "more than 16384 bytes"),
    ],
)
def test_what_is_not_possible_is_refused(inner: str, says: str) -> None:
    with pytest.raises(Refusal, match=re.escape(says)):
        read_registration(document(inner), XML)


def test_another_document_is_none() -> None:
    with pytest.raises(Refusal, match="<push-registration> or"):
        read_registration(b"<x/>", XML)
    with pytest.raises(Refusal, match="application/xml is expected"):
        read_registration(document(LINK), "text/plain")
