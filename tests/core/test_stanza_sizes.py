"""The limit of a server: as it announces it, or as the ends of streams show it."""

from __future__ import annotations

import math

import pytest

from qos.core.stanza_sizes import LEARNED_S, LEAST_BYTES, StanzaSizes, is_for_size

NOW = 1_000_000.0
TOO_BIG = "XML stanza is too big"


def ended_by(sizes: StanzaSizes, *written: int, now: float = NOW) -> str | None:
    """A session in which these are written, and that ends because of a size."""
    sizes.started(now)
    for size in written:
        sizes.written(f"iq-{size}", size, now)
    return sizes.ended(now)


@pytest.mark.parametrize(
    ("condition", "text", "expected"),
    [
        ("policy-violation", TOO_BIG, True),
        ("policy-violation", "", True),
        ("policy-violation", "Traffic rate limit is exceeded", False),
        ("policy-violation", "Too many failed login attempts", False),
        ("not-authorized", "stanza size exceeded", True),
        ("not-well-formed", TOO_BIG, True),
        ("not-authorized", "", False),
        ("conflict", "Replaced by new connection", False),
        ("system-shutdown", "", False),
    ],
)
def test_an_end_is_about_a_size_by_its_condition_or_its_text(
    condition: str, text: str, *, expected: bool
) -> None:
    """RFC 6120 §4.9.3.14 names the size first, but servers end other things so too."""
    assert is_for_size(condition, text) is expected


# -- what the server says --------------------------------------------------


def test_nothing_is_known_before_anything_is_said_or_seen() -> None:
    sizes = StanzaSizes()
    assert (sizes.limit, sizes.careful, sizes.batch_max) == (None, False, None)
    assert not sizes.suspects(10**9)
    assert sizes.to_text() == ""


def test_a_size_is_certainly_taken_if_it_was_or_if_the_server_says_so() -> None:
    """That nothing is known against it is no such thing."""
    sizes = StanzaSizes()
    assert not sizes.are_taken(1)
    sizes.went_through(500)
    assert (sizes.are_taken(500), sizes.are_taken(501)) == (True, False)
    sizes.announced(10_000)
    assert (sizes.are_taken(10_000), sizes.are_taken(10_001)) == (True, False)


def test_the_announced_limit_counts_as_it_was_said_last() -> None:
    """XEP-0478: another one may be offered after the login, or in the next session."""
    sizes = StanzaSizes()
    sizes.announced(10_000)
    assert (sizes.limit, sizes.batch_max) == (10_000, 7_500)
    sizes.announced(262_144)
    assert sizes.limit == 262_144
    sizes.announced(None)
    assert sizes.limit is None


def test_a_new_announcement_is_right_whatever_was_learned() -> None:
    sizes = StanzaSizes()
    ended_by(sizes, 50_000)
    ended_by(sizes, 50_000)
    sizes.announced(100_000)
    assert (sizes.limit, sizes.careful) == (100_000, False)
    # The same again is no news: what was learned under it stays.
    ended_by(sizes, 80_000)
    ended_by(sizes, 80_000)
    sizes.announced(100_000)
    assert sizes.limit == 79_999


# -- what is learned -------------------------------------------------------


def test_two_ends_in_a_row_with_one_stanza_are_the_limit() -> None:
    sizes = StanzaSizes()
    assert ended_by(sizes, 500, 50_000) == "iq-50000"
    assert (sizes.limit, sizes.careful) == (None, True)
    assert ended_by(sizes, 500, 50_000) == "iq-50000"
    assert sizes.limit == 49_999


def test_the_largest_of_what_was_written_was_not_taken() -> None:
    """If any is over the limit, this one is; in whatever order they were written."""
    sizes = StanzaSizes()
    assert ended_by(sizes, 30_000, 50_000, 40_000) == "iq-50000"


def test_a_smaller_one_that_ends_a_stream_needs_two_ends_of_its_own() -> None:
    """The first end proves only that the largest is over the limit."""
    sizes = StanzaSizes()
    ended_by(sizes, 40_000, 50_000)
    ended_by(sizes, 40_000)
    assert sizes.limit is None
    ended_by(sizes, 40_000)
    assert sizes.limit == 39_999


def test_a_larger_one_that_ends_a_stream_proves_no_smaller_limit() -> None:
    sizes = StanzaSizes()
    ended_by(sizes, 40_000)
    ended_by(sizes, 50_000)
    assert sizes.limit == 49_999
    ended_by(sizes, 60_000)
    assert sizes.limit == 49_999


def test_only_what_has_not_gone_through_is_suspected() -> None:
    """RFC 6120 §13.12: every server takes the first 10,000 bytes."""
    sizes = StanzaSizes()
    ended_by(sizes, 500, 50_000)
    assert not sizes.suspects(LEAST_BYTES)
    assert sizes.suspects(LEAST_BYTES + 1)
    sizes.went_through(30_000)
    assert not sizes.suspects(30_000)
    assert sizes.suspects(30_001)
    assert sizes.batch_max == 22_500


def test_a_server_that_takes_less_than_the_standard_demands_is_learned_too() -> None:
    sizes = StanzaSizes()
    ended_by(sizes, 200, 4_000)
    assert sizes.suspects(200)
    sizes.went_through(200)
    assert not sizes.suspects(200)
    assert sizes.suspects(201)


def test_a_suspect_that_goes_through_ends_the_suspicion() -> None:
    """Something else has ended the stream then."""
    sizes = StanzaSizes()
    ended_by(sizes, 50_000)
    sizes.started(NOW)
    sizes.written("iq-50000", 50_000, NOW)
    assert sizes.awaited == {"iq-50000"}
    sizes.answered("another")
    assert sizes.careful
    sizes.answered("iq-50000")
    assert (sizes.careful, sizes.limit, sizes.on_way) == (False, None, [])
    assert not sizes.suspects(10**9)


def test_what_goes_through_after_all_is_refused_no_longer() -> None:
    """A server looks at the size only now and then, or was given another limit."""
    sizes = StanzaSizes()
    ended_by(sizes, 50_000)
    ended_by(sizes, 50_000)
    sizes.went_through(50_000)
    assert sizes.limit is None


def test_an_end_that_nothing_explains_makes_nothing_suspect() -> None:
    """A size that went through may be over the limit that the server has now."""
    sizes = StanzaSizes()
    sizes.written("a", 50_000, NOW)
    sizes.answered("a")
    sizes.written("b", 50_000, NOW)
    assert sizes.on_way == []
    assert sizes.ended(NOW) is None
    assert not sizes.careful
    # So it counts again.
    assert ended_by(sizes, 50_000) == "iq-50000"
    assert sizes.careful


def test_a_stanza_without_an_answer_has_been_read_after_a_while() -> None:
    sizes = StanzaSizes()
    sizes.written("", 50_000, NOW)
    assert sizes.awaited == frozenset()
    assert sizes.ended(NOW + 299.0) == ""
    sizes = StanzaSizes()
    sizes.written("", 50_000, NOW)
    assert sizes.ended(NOW + 301.0) is None
    # One that is answered has no such time: its peer may be slow.
    sizes.written("a", 50_000, NOW)
    assert sizes.ended(NOW + 301.0) == "a"


def test_only_the_largest_are_remembered() -> None:
    """However many are written, each larger than the one before."""
    sizes = StanzaSizes()
    for size in range(1_000, 1_200):
        sizes.written(f"iq-{size}", size, NOW)
    assert len(sizes.on_way) == 64
    assert sizes.ended(NOW) == "iq-1199"


# -- time, and the next process --------------------------------------------


def test_what_was_learned_is_forgotten_after_an_hour() -> None:
    """A server can be given another limit."""
    sizes = StanzaSizes()
    ended_by(sizes, 50_000)
    ended_by(sizes, 50_000)
    sizes.refresh(NOW + LEARNED_S)
    held = sizes.limit
    sizes.refresh(NOW + LEARNED_S + 1.0)
    assert (held, sizes.limit, sizes.careful) == (49_999, None, False)


def test_two_ends_an_hour_apart_are_not_in_a_row() -> None:
    sizes = StanzaSizes()
    ended_by(sizes, 50_000)
    ended_by(sizes, 50_000, now=NOW + 2 * LEARNED_S)
    assert sizes.limit is None
    assert sizes.careful


def test_a_process_that_is_killed_between_two_ends_goes_on_where_it_was() -> None:
    first = StanzaSizes()
    first.went_through(700)
    ended_by(first, 50_000)
    second = StanzaSizes()
    second.restore(first.to_text(), NOW + 60.0)
    assert second.careful
    assert second.largest == 700
    ended_by(second, 50_000, now=NOW + 60.0)
    assert second.limit == 49_999
    third = StanzaSizes()
    third.restore(second.to_text(), NOW + 120.0)
    assert third.limit == 49_999


def test_what_a_process_finds_after_an_hour_is_forgotten() -> None:
    """Or before, by a clock that was wrong."""
    first = StanzaSizes()
    ended_by(first, 50_000)
    for now in (NOW + 2 * LEARNED_S, NOW - 2 * LEARNED_S):
        second = StanzaSizes()
        second.restore(first.to_text(), now)
        assert not second.careful


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", "[1, 2]", '["a", 1, 2, 3]', "5"])
def test_a_kept_text_that_is_none_is_ignored(text: str) -> None:
    sizes = StanzaSizes()
    sizes.restore(text, NOW)
    assert (sizes.careful, sizes.limit, sizes.to_text()) == (False, None, "")


def test_a_batch_is_never_larger_than_what_is_taken() -> None:
    sizes = StanzaSizes()
    sizes.announced(12_000)
    ended_by(sizes, 50_000)
    assert sizes.batch_max == 7_500
    sizes.went_through(11_000)
    assert sizes.batch_max == 8_250
    sizes.went_through(20_000)
    assert sizes.batch_max == 9_000
    assert math.isfinite(sizes.batch_max)
