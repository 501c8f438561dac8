"""Forwarding a message to a push subscriber: the requests to make, and what came of it.

The relation of the subscriber's link decides (docs/rest-checklist.md U2, U3, U5 and U7):

    post-message-once  an empty POST asks for a one-off link, `create-next`; the message is
                       posted there; the answer has the link for the next message
    destination        HEAD asks for the links of the destination, and the best one is used
    template           the message is sent where its key is the `{id}` of the URL (HornetQ)
    any other          the message is sent, with an `Idempotency-Key`

A one-off link has to be written down before it is used. If the outcome of a post is not
known, the same link has to be used again: it answers 405 if the message is there. So each
message arrives once, whatever is cut or killed, as long as the target knows the link.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import TypeAlias, TypeGuard
from urllib.parse import quote, urljoin

from qos.core.record import record, replace
from qos.core.rest.link_header import read_links
from qos.core.rest.push_links import AtomLink

__all__ = [
    "REDIRECTS_MAX",
    "RETRY_AFTER_S_MAX",
    "Fate",
    "NoReply",
    "PushReply",
    "PushRequest",
    "Verdict",
    "forward",
]

#: The redirects (307, 308) of one request that are followed.
REDIRECTS_MAX = 5

#: The longest time for which a target can put a subscriber off.
RETRY_AFTER_S_MAX = 3600.0

_ONCE = "post-message-once"
_DESTINATION = "destination"
_TEMPLATE = "template"
_ID = "{id}"

#: The links of a destination, the best first; `create…` are those of HornetQ.
_OFFERED = (_ONCE, "create-with-id", "post-message", "create")

_REDIRECTED = frozenset({307, 308})
_GONE = 410
_NOT_FOUND = 404
_USED = 405

#: A proxy says that it has not reached the target, or had no answer of it (RFC 9110
#: §15.6.3, §15.6.5). It says so for as long as the target is down: that is no failure of
#: each message, as it is none where there is no proxy. Whether the target has this
#: message nobody knows.
_UNREACHED = frozenset({502, 504})


class Fate(Enum):
    """The outcome of an attempt to forward a message, as of a delivery (AMQP 1.0 §3.4)."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    #: It has not failed; the target wants to be asked later.
    RELEASED = "released"
    #: It has not failed; nothing more is sent to this subscriber.
    DISABLED = "disabled"
    FAILED = "failed"
    #: It has not failed, since it has not left, or not gone further than to a proxy:
    #: there was no connection, or no link to post it to.
    UNSENT = "unsent"


@record(frozen=True, slots=True)
class PushRequest:
    """A request to make; nothing of it is checked yet.

    Attributes:
        method: `POST`, `HEAD` or `PUT`.
        url: absolute.
        message: it has the message as its body; False: it has none.
        keep: write the URL down beside the item first.
        key: `Idempotency-Key`, or ''.
    """

    method: str
    url: str
    message: bool = False
    keep: bool = False
    key: str = ""


@record(frozen=True, slots=True)
class PushReply:
    """A reply.

    Attributes:
        url: of its request.
        status: such as 200.
        headers: by their names in lower case; those that came twice are joined.
        whole: its headers have come; False: they were cut off, or could not be read.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    whole: bool = True


@record(frozen=True, slots=True)
class NoReply:
    """There was no reply, and it is not known whether the request has arrived.

    Attributes:
        reason: for people.
        forbidden: nothing can be pushed to the URL, however often that is tried.
        unsent: none of it has left, so it has certainly not arrived.
    """

    reason: str
    forbidden: bool = False
    unsent: bool = False


@record(frozen=True, slots=True)
class Verdict:
    """The end of an attempt.

    Attributes:
        fate: of the message.
        reason: for people; '' if accepted.
        retry_after: the value of that header, or ''.
        unused: a one-off link for the next message, or ''.
    """

    fate: Fate
    reason: str = ""
    retry_after: str = ""
    unused: str = ""

    def retry_after_s(self, now: float) -> float | None:
        """The seconds for which the target wants no request; None: it has not said."""
        text = self.retry_after.strip()
        if text.isascii() and text.isdecimal():
            seconds = float(text[:9])
        else:
            try:
                seconds = parsedate_to_datetime(text).timestamp() - now
            except (ValueError, OverflowError):
                return None
        return min(max(seconds, 0.0), RETRY_AFTER_S_MAX)


_Answer: TypeAlias = PushReply | NoReply
_Steps: TypeAlias = Generator[PushRequest, _Answer, Verdict]


def forward(
    link: AtomLink,
    *,
    key: str,
    method: str = "POST",
    stored_link: str = "",
    unused_link: str = "",
) -> _Steps:
    """Forward one message: yields requests, is sent their answers, returns the verdict.

    Args:
        link: of the subscriber.
        key: the same for each attempt at this message, and for no other message.
        method: by which the message is sent, unless a link of the target means a POST.
        stored_link: the one-off link that was written down for this message, or ''.
        unused_link: a one-off link that no message was posted to, or ''.
    """
    if link.rel == _TEMPLATE:
        return (yield from _plain(method, _filled(link.href, key), key))
    if link.rel not in {_ONCE, _DESTINATION}:
        return (yield from _plain(method, link.href, key))
    if stored_link:
        answer = yield from _ask(PushRequest("POST", stored_link, message=True))
        if not _is_unknown(answer, 0):
            return _once_verdict(answer)
        unused_link = _create_next(answer)
    if unused_link:
        answer = yield from _once(unused_link)
        if not _is_unknown(answer, _NOT_FOUND):
            return _once_verdict(answer)
    return (yield from _begin(link, method, key))


def _begin(link: AtomLink, method: str, key: str) -> _Steps:
    """Forward by the permanent link."""
    entry = link.href
    if link.rel == _DESTINATION:
        answer = yield from _ask(PushRequest("HEAD", link.href))
        if not _is_success(answer):
            return _about_target(answer)
        rel, entry = _best(answer)
        if not entry:
            return Verdict(Fate.DISABLED, f"{link.href} offers no link to post to")
        if rel == "create-with-id":
            return (yield from _plain(method, _filled(entry, key), key))
        if rel != _ONCE:
            return (yield from _plain("POST", entry, key))
    answer = yield from _ask(PushRequest("POST", entry))
    if not _is_success(answer):
        return _about_target(answer)
    one_off = _create_next(answer)
    if not one_off:
        return Verdict(Fate.DISABLED, f"{entry} gives no create-next link")
    return _once_verdict((yield from _once(one_off)))


def _plain(method: str, url: str, key: str) -> _Steps:
    answer = yield from _ask(PushRequest(method, url, message=True, key=key))
    return _verdict(answer)


def _filled(template: str, key: str) -> str:
    return template.replace(_ID, quote(key, safe=""))


def _once(url: str) -> Generator[PushRequest, _Answer, _Answer]:
    return (yield from _ask(PushRequest("POST", url, message=True, keep=True)))


def _ask(request: PushRequest) -> Generator[PushRequest, _Answer, _Answer]:
    """Make a request, and follow its redirects by the same method."""
    answer = yield request
    for _ in range(REDIRECTS_MAX):
        if isinstance(answer, NoReply) or answer.status not in _REDIRECTED:
            return answer
        url = _location(answer)
        if not url:
            return answer
        # What is written down is the link that leads here.
        again = PushRequest(request.method, url, request.message, key=request.key)
        answer = yield again
    return answer


# -- what an answer means --------------------------------------------------


def _is_success(answer: _Answer) -> TypeGuard[PushReply]:
    if not isinstance(answer, PushReply):
        return False
    return answer.whole and 200 <= answer.status < 300


def _is_unknown(answer: _Answer, status: int) -> TypeGuard[PushReply]:
    """Whether the target says that it does not know this link, used or not."""
    return isinstance(answer, PushReply) and answer.status in {_GONE, status}


def _once_verdict(answer: _Answer) -> Verdict:
    """The verdict of a one-off link: 405 means that the message is there.

    docs/rest-checklist.md U5.
    """
    verdict = _verdict(answer)
    if isinstance(answer, NoReply):
        return verdict
    if answer.status == _USED:
        verdict = Verdict(Fate.ACCEPTED)
    if verdict.fate is not Fate.ACCEPTED:
        return verdict
    return Verdict(Fate.ACCEPTED, unused=_create_next(answer))


def _verdict(answer: _Answer) -> Verdict:
    if isinstance(answer, NoReply):
        if answer.forbidden:
            return Verdict(Fate.DISABLED, answer.reason)
        fate = Fate.UNSENT if answer.unsent else Fate.FAILED
        return Verdict(fate, answer.reason)
    fate = _fate(answer.status)
    if fate is Fate.ACCEPTED:
        return Verdict(fate)
    reason = f"{answer.url} answered {answer.status}{_why_not_followed(answer)}"
    return Verdict(fate, reason, answer.headers.get("retry-after", ""))


def _why_not_followed(answer: PushReply) -> str:
    """The reason why a redirect was not followed; '': it is none."""
    if answer.status not in _REDIRECTED:
        return ""
    if _location(answer):
        return f", after {REDIRECTS_MAX} redirects"
    return ", without a URL in Location"


def _fate(status: int) -> Fate:
    """The fate of a message by the status of the answer, as in HornetQ.

    docs/rest-checklist.md U7.
    """
    if 200 <= status < 300 or status in {303, 304}:
        return Fate.ACCEPTED
    if status in {429, 503}:
        return Fate.RELEASED
    if status in _UNREACHED:
        return Fate.UNSENT
    if status in {400, 422} or 411 <= status <= 417:
        return Fate.REJECTED
    if status in {401, 402, 403, _USED, 406, 407, 505}:
        return Fate.DISABLED
    return Fate.FAILED


def _about_target(answer: _Answer) -> Verdict:
    """The verdict of a request without the message, which has not left then.

    So it has neither failed nor been rejected.
    """
    verdict = _verdict(answer)
    if verdict.fate is Fate.REJECTED:
        return Verdict(Fate.DISABLED, verdict.reason)
    if verdict.fate is Fate.FAILED:
        return replace(verdict, fate=Fate.UNSENT)
    if verdict.fate is Fate.ACCEPTED:  # 303, 304, or without headers
        assert isinstance(answer, PushReply)
        reason = f"{answer.url} answered {answer.status}, without a link to post to"
        return Verdict(Fate.UNSENT, reason)
    return verdict


# -- links of an answer ----------------------------------------------------


def _links(answer: PushReply) -> dict[str, str]:
    """The links of a reply by their relations: as `Link`, or as HornetQ has them."""
    links: dict[str, str] = {}
    for link in read_links(answer.headers.get("link", "")):
        for rel in link.rel.split():
            links.setdefault(rel, _joined(answer.url, link.href))
    for rel in (*_OFFERED, "create-next"):
        href = answer.headers.get(f"msg-{rel}", "")
        if href:
            links.setdefault(rel, _joined(answer.url, href))
    return links


def _create_next(answer: PushReply) -> str:
    return _links(answer).get("create-next", "")


def _best(answer: PushReply) -> tuple[str, str]:
    """The best link that a destination offers; ('', ''): none."""
    links = _links(answer)
    for rel in _OFFERED:
        if links.get(rel):
            return rel, links[rel]
    return "", ""


def _location(answer: PushReply) -> str:
    """The URL that an answer leads to; '': there is none."""
    return _joined(answer.url, answer.headers.get("location", ""))


def _joined(base: str, href: str) -> str:
    """An absolute URL; '': there is none."""
    try:
        return urljoin(base, href.strip()) if href.strip() else ""
    except ValueError:
        return ""
