"""Each course of forwarding a message, request by request.

docs/rest-checklist.md U2, U3, U5 and U7.
"""

from collections.abc import Mapping, Sequence

import pytest

from qos.core.rest.forwarding import (
    REDIRECTS_MAX,
    RETRY_AFTER_S_MAX,
    Fate,
    NoReply,
    PushReply,
    PushRequest,
    Verdict,
    forward,
)
from qos.core.rest.push_links import AtomLink

BASE = "https://foo.example"
HREF = f"{BASE}/messages"
ONCE = AtomLink("post-message-once", HREF)
DESTINATION = AtomLink("destination", HREF)
PLAIN = AtomLink("post-message", HREF)
CUT = NoReply("the connection was cut")

ASK = PushRequest("POST", HREF)
HEAD = PushRequest("HEAD", HREF)


def once(path: str) -> PushRequest:
    return PushRequest("POST", f"{BASE}{path}", message=True, keep=True)


def again(path: str) -> PushRequest:
    return PushRequest("POST", f"{BASE}{path}", message=True)


def plain(path: str, key: str = "k 1") -> PushRequest:
    return PushRequest("POST", f"{BASE}{path}", message=True, key=key)


def link(
    status: int, path: str = "", rel: str = "create-next"
) -> tuple[int, Mapping[str, str]]:
    return status, {"link": f'<{path}>; rel="{rel}"'} if path else {}


Answer = NoReply | PushReply | tuple[int, Mapping[str, str]]


def play(
    subscriber: AtomLink,
    *answers: Answer | int,
    stored_link: str = "",
    unused_link: str = "",
    method: str = "POST",
) -> tuple[list[PushRequest], Verdict]:
    """The requests that were made, and the verdict, when they are answered so."""
    steps = forward(
        subscriber,
        key="k 1",
        method=method,
        stored_link=stored_link,
        unused_link=unused_link,
    )
    asked = [next(steps)]
    for given in answers:
        answer: PushReply | NoReply
        if isinstance(given, NoReply | PushReply):
            answer = given
        elif isinstance(given, int):
            answer = PushReply(asked[-1].url, given, {})
        else:
            answer = PushReply(asked[-1].url, *given)
        try:
            asked.append(steps.send(answer))
        except StopIteration as end:
            verdict: Verdict = end.value
            return asked, verdict
    raise AssertionError(f"it still asks: {asked}")


def test_u2_an_empty_post_gives_the_one_off_link() -> None:
    asked, verdict = play(ONCE, link(200, "/messages/1"), link(200, "/messages/2"))
    assert asked == [ASK, once("/messages/1")]
    assert verdict == Verdict(Fate.ACCEPTED, unused=f"{BASE}/messages/2")


def test_u2_the_next_message_uses_the_link_that_came_back() -> None:
    unused = f"{BASE}/messages/2"
    asked, verdict = play(ONCE, link(201, "/messages/3"), unused_link=unused)
    assert asked == [once("/messages/2")]
    assert verdict.unused == f"{BASE}/messages/3"


def test_u2_hornetq_names_the_link_in_a_header() -> None:
    asked, verdict = play(ONCE, (200, {"msg-create-next": "/1"}), 200)
    assert asked == [ASK, once("/1")]
    assert verdict == Verdict(Fate.ACCEPTED)


def test_u5_405_means_that_the_target_has_it() -> None:
    kept = f"{BASE}/messages/1"
    asked, verdict = play(ONCE, link(405, "/messages/2"), stored_link=kept)
    assert asked == [again("/messages/1")]
    assert verdict == Verdict(Fate.ACCEPTED, unused=f"{BASE}/messages/2")
    assert play(ONCE, 405, stored_link=kept)[1].fate is Fate.ACCEPTED


def test_the_kept_link_comes_before_an_unused_one() -> None:
    """The message may be there by the kept one, and only that one would say so."""
    asked, _ = play(ONCE, 200, stored_link=f"{BASE}/1", unused_link=f"{BASE}/2")
    assert asked == [again("/1")]


def test_without_a_reply_the_message_has_failed_and_its_link_stays() -> None:
    assert play(ONCE, link(200, "/1"), CUT)[1] == Verdict(Fate.FAILED, CUT.reason)
    assert play(PLAIN, CUT)[1] == Verdict(Fate.FAILED, CUT.reason)
    assert play(ONCE, CUT, stored_link=f"{BASE}/1")[1] == Verdict(
        Fate.FAILED, CUT.reason
    )


def test_a_link_that_is_gone_is_replaced() -> None:
    """410: too old to know. The message may be there by now, and is posted all the same."""
    asked, verdict = play(
        *(ONCE, link(410, "/2"), link(200, "/3")),
        stored_link=f"{BASE}/1",
        unused_link=f"{BASE}/9",
    )
    assert asked == [again("/1"), once("/2")]
    assert verdict.unused == f"{BASE}/3"
    asked, _ = play(ONCE, 410, link(200, "/2"), 200, stored_link=f"{BASE}/1")
    assert asked == [again("/1"), ASK, once("/2")]
    asked, _ = play(ONCE, 410, link(200, "/2"), 200, unused_link=f"{BASE}/1")
    assert asked == [once("/1"), ASK, once("/2")]


def test_an_unused_link_that_is_unknown_is_replaced_and_a_kept_one_is_not() -> None:
    """The kept one may have been used: 404 does not say that nothing is there."""
    asked, _ = play(ONCE, 404, link(200, "/2"), 200, unused_link=f"{BASE}/1")
    assert asked == [once("/1"), ASK, once("/2")]
    asked, verdict = play(ONCE, 404, stored_link=f"{BASE}/1")
    assert (asked, verdict.fate) == ([again("/1")], Fate.FAILED)


def test_a_target_without_one_off_links_disables_the_subscriber() -> None:
    assert play(ONCE, 200)[1].fate is Fate.DISABLED
    # No relation at all: its target has not understood.
    assert play(ONCE, link(200, "/1", rel="other"))[1].fate is Fate.DISABLED
    assert play(ONCE, (200, {"link": "<http://[x>; rel=create-next"}))[1].fate is (
        Fate.DISABLED
    )


@pytest.mark.parametrize(
    ("status", "fate"),
    [
        *((303, Fate.UNSENT), (400, Fate.DISABLED), (403, Fate.DISABLED)),
        *((404, Fate.UNSENT), (405, Fate.DISABLED), (422, Fate.DISABLED)),
        *((500, Fate.UNSENT), (503, Fate.RELEASED)),
    ],
)
def test_an_empty_request_never_kills_a_message(status: int, fate: Fate) -> None:
    """The message has not left, so its delivery has not failed."""
    assert play(ONCE, status)[1].fate is fate
    assert play(DESTINATION, status)[1].fate is fate


def test_a_message_that_waits_for_a_link_has_not_left() -> None:
    for subscriber in (ONCE, DESTINATION):
        assert play(subscriber, CUT)[1] == Verdict(Fate.UNSENT, CUT.reason)
    # Nor has it by a link that the target does not know any more.
    verdict = play(ONCE, 410, CUT, stored_link=f"{BASE}/1")[1]
    assert verdict == Verdict(Fate.UNSENT, CUT.reason)


def test_a_status_without_headers_decides_about_the_message() -> None:
    """Its headers were cut off: there is no link for the next message, and no more."""
    used = PushReply(HREF, 200, {}, whole=False)
    assert play(PLAIN, used)[1] == Verdict(Fate.ACCEPTED)
    assert play(ONCE, used, unused_link=HREF)[1] == Verdict(Fate.ACCEPTED)
    assert play(ONCE, link(200, "/1"), used)[1] == Verdict(Fate.ACCEPTED)


def test_a_link_that_was_cut_off_is_asked_for_again() -> None:
    """Only a whole answer says that the target gives no links."""
    cut_off = PushReply(HREF, 200, {}, whole=False)
    reason = f"{HREF} answered 200, without a link to post to"
    for subscriber in (ONCE, DESTINATION):
        assert play(subscriber, cut_off)[1] == Verdict(Fate.UNSENT, reason)


def test_u3_any_other_relation_is_one_post_with_a_key() -> None:
    for rel in ("post-message", "alternate", "urn:x"):
        asked, verdict = play(AtomLink(rel, HREF), 200)
        assert (asked, verdict) == ([plain("/messages")], Verdict(Fate.ACCEPTED))
    # A one-off link is none of its business.
    asked, _ = play(
        PLAIN, link(200, "/1"), stored_link=f"{BASE}/1", unused_link=f"{BASE}/1"
    )
    assert asked == [plain("/messages")]


def test_u3_a_destination_is_asked_for_its_links_and_the_best_is_used() -> None:
    offer = {
        "link": '</a>; rel="post-message", </b>; rel="post-message-once x"',
        "msg-create": "/d",
        "msg-create-with-id": "/c/{id}",
    }
    asked, verdict = play(DESTINATION, (200, offer), link(200, "/1"), link(200, "/2"))
    assert asked == [HEAD, PushRequest("POST", f"{BASE}/b"), once("/1")]
    assert verdict.unused == f"{BASE}/2"
    del offer["link"]
    assert play(DESTINATION, (200, offer), 201)[0] == [HEAD, plain("/c/k%201")]
    del offer["msg-create-with-id"]
    assert play(DESTINATION, (200, offer), 201)[0] == [HEAD, plain("/d")]
    offer["link"] = "</a>; rel=post-message"
    assert play(DESTINATION, (200, offer), 200)[0] == [HEAD, plain("/a")]
    assert play(DESTINATION, (200, {}))[1].fate is Fate.DISABLED


def test_u3_a_destination_is_not_asked_again_while_it_gives_links() -> None:
    asked, _ = play(DESTINATION, link(200, "/2"), unused_link=f"{BASE}/1")
    assert asked == [once("/1")]
    asked, _ = play(DESTINATION, 405, stored_link=f"{BASE}/1")
    assert asked == [again("/1")]


U7: Sequence[tuple[int, Fate]] = [
    *((status, Fate.ACCEPTED) for status in (200, 201, 202, 204, 299, 303, 304)),
    *((status, Fate.RELEASED) for status in (429, 503)),
    *((status, Fate.REJECTED) for status in (400, *range(411, 418), 422)),
    *((status, Fate.DISABLED) for status in (401, 402, 403, 405, 406, 407, 505)),
    *((status, Fate.FAILED) for status in (404, 408, 409, 410, 418, 423, 499)),
    *((status, Fate.FAILED) for status in (500, 501, 506, 599)),
    *((status, Fate.UNSENT) for status in (502, 504)),
    *((status, Fate.FAILED) for status in (100, 199, 300, 301, 302, 305, 600)),
]


@pytest.mark.parametrize(("status", "fate"), U7)
def test_u7_the_status_decides_about_the_message(status: int, fate: Fate) -> None:
    asked, verdict = play(PLAIN, (status, {"retry-after": "7"}))
    assert len(asked) == 1
    assert verdict.fate is fate
    if fate is not Fate.ACCEPTED:
        assert verdict.reason == f"{HREF} answered {status}"
        assert verdict.retry_after == "7"
    if status not in {404, 405, 410}:
        assert play(ONCE, status, unused_link=HREF)[1].fate is fate


def test_u7_redirects_are_followed_by_the_same_method_at_most_five_times() -> None:
    to = [(307, {"location": f"/{n}"}) for n in range(9)]
    asked, verdict = play(PLAIN, *to[:REDIRECTS_MAX], 200)
    assert asked == [plain("/messages"), *(plain(f"/{n}") for n in range(5))]
    assert verdict.fate is Fate.ACCEPTED
    asked, verdict = play(PLAIN, *to[: REDIRECTS_MAX + 1])
    assert len(asked) == REDIRECTS_MAX + 1
    assert verdict.fate is Fate.FAILED
    assert verdict.reason == f"{BASE}/4 answered 307, after 5 redirects"
    asked, _ = play(DESTINATION, (308, {"location": "/d"}), (200, {}))
    assert asked == [HEAD, PushRequest("HEAD", f"{BASE}/d")]


def test_u7_the_link_that_is_written_down_is_not_where_it_redirects_to() -> None:
    asked, _ = play(
        ONCE, (307, {"location": "https://b.example/x"}), 200, unused_link=HREF
    )
    to = PushRequest("POST", "https://b.example/x", message=True)
    assert asked == [once("/messages"), to]


@pytest.mark.parametrize("location", [None, "", " ", "http://[x"])
def test_a_redirect_to_nowhere_has_failed(location: str | None) -> None:
    headers = {} if location is None else {"location": location}
    verdict = play(PLAIN, (307, headers))[1]
    assert verdict.fate is Fate.FAILED
    assert verdict.reason == f"{HREF} answered 307, without a URL in Location"


def test_h14_a_template_has_the_key_in_place_of_its_id() -> None:
    template = AtomLink("template", "https://example.org/{id}/in")
    requests, verdict = play(template, 201)
    assert [each.url for each in requests] == ["https://example.org/k%201/in"]
    assert verdict.fate is Fate.ACCEPTED


def test_h14_a_message_is_put_where_no_link_of_the_target_means_a_post() -> None:
    def put(path: str) -> PushRequest:
        return PushRequest("PUT", f"{BASE}{path}", message=True, key="k 1")

    assert play(PLAIN, 200, method="PUT")[0] == [put("/messages")]
    template = AtomLink("template", f"{BASE}/{{id}}")
    assert play(template, (307, {"location": "/b"}), 201, method="PUT")[0] == [
        put("/k%201"),
        put("/b"),
    ]
    offer = {"msg-create-with-id": "/c/{id}", "msg-create": "/d"}
    assert play(DESTINATION, (200, offer), 201, method="PUT")[0] == [
        HEAD,
        put("/c/k%201"),
    ]
    del offer["msg-create-with-id"]
    asked = play(DESTINATION, (200, offer), 201, method="PUT")[0]
    assert asked == [HEAD, plain("/d")]
    offer["link"] = "</b>; rel=post-message-once"
    asked = play(DESTINATION, (200, offer), link(200, "/1"), 200, method="PUT")[0]
    assert asked == [HEAD, PushRequest("POST", f"{BASE}/b"), once("/1")]


def test_u9_a_forbidden_url_disables_the_subscriber() -> None:
    forbidden = NoReply("no", forbidden=True)
    for subscriber in (PLAIN, ONCE, DESTINATION):
        assert play(subscriber, forbidden)[1] == Verdict(Fate.DISABLED, "no")
    assert play(ONCE, link(200, "/1"), forbidden)[1] == Verdict(Fate.DISABLED, "no")


def test_u7_where_there_was_no_connection_nothing_has_failed() -> None:
    """By the defaults of a queue, its messages would be dead after half a minute."""
    unsent = NoReply("down", unsent=True)
    for subscriber in (PLAIN, ONCE, DESTINATION):
        assert play(subscriber, unsent)[1] == Verdict(Fate.UNSENT, "down")
    assert play(ONCE, link(200, "/1"), unsent)[1] == Verdict(Fate.UNSENT, "down")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("99999999999", RETRY_AFTER_S_MAX),
        ("Thu, 01 Jan 1970 00:01:00 GMT", 20.0),
        ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
        ("", None),
        ("-1", None),
        ("soon", None),
        ("\u0661", None),
        ("Thu, 01 Jan 99999 00:00:10 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, seconds: float | None) -> None:
    assert Verdict(Fate.RELEASED, retry_after=text).retry_after_s(40.0) == seconds
