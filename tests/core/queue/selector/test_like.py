"""LIKE: the same answers as a matcher that tries all ways, and never its time."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qos.core.queue.selector import Selector, parse
from qos.core.queue.selector.like import like
from qos.core.queue.selector.parser import SEARCHES_MAX
from qos.core.queue.selector.tokens import TEXT_CHARS_MAX
from steps_taken import steps_of

#: Two characters that differ in one byte of UTF-32, each in another one.
LETTERS = "aA\u0141\U00010041"


def slow(pattern: str, text: str) -> bool:
    """The definition, by the first character of the pattern."""
    reached = {0}
    for each in pattern:
        if each == "%":
            reached = set(range(min(reached, default=0), len(text) + 1)) & {
                place for at in reached for place in range(at, len(text) + 1)
            }
        else:
            reached = {
                at + 1 for at in reached if at < len(text) and each in {"_", text[at]}
            }
    return len(text) in reached


@given(
    st.text(LETTERS + "%%__", max_size=8),
    st.text(LETTERS, max_size=12),
    st.sampled_from([1, 1, 30]),
)
@example("%a_a%", "\U00010041a", 80)
@example("%A_%", "\u0141", 100)
@example("%A_%", "aAa", 1)
@example("%a_%a_%", "AAaA", 1)
def test_a_pattern_matches_as_it_is_defined(
    pattern: str, text: str, times: int
) -> None:
    """Also for characters that are so frequent that they are looked for at once."""
    assert like(pattern, "")(text * times) is slow(pattern, text * times)


#: A part of a pattern, and the letters of a text, that are searched for longest.
DEAREST = [
    *(("%a_a_a_", "a"), ("%a_", "a"), ("%a_b%", "ab"), ("%é_€_", "é€"), ("%a_%", "a")),
]


def dearest(part: str, letters: str) -> tuple[Selector, str]:
    """A selector of nearly the longest text, and a long text that it does not match."""
    pattern = (part * TEXT_CHARS_MAX)[: TEXT_CHARS_MAX // SEARCHES_MAX - 25]
    selector = parse(" OR ".join([f"x LIKE '{pattern}z_%q'"] * SEARCHES_MAX))
    return selector, (letters * 7500)[:7500] + "q"


@pytest.mark.parametrize(("part", "letters"), DEAREST)
def test_no_character_of_a_text_takes_a_step_of_its_own(
    part: str, letters: str
) -> None:
    """It did once: 4 ms for an item. A step takes at least four instructions."""
    selector, text = dearest(part, letters)
    names = {"x": text}
    assert not selector.matches(names)
    steps = steps_of(lambda: selector.matches(names))
    assert steps < 2 * SEARCHES_MAX * len(text)


@pytest.mark.long  # it measures
@pytest.mark.parametrize(("part", "letters"), DEAREST)
def test_the_dearest_patterns_take_less_than_a_turn_of_the_loop(
    part: str, letters: str
) -> None:
    """By the processor time, in which the work of single instructions is too.

    It is measured beside an empty loop over the characters, which takes 0.2 ms where a turn
    may take 5: so a slow machine fails no more often than a fast one.
    """
    selector, text = dearest(part, letters)
    took, loops = [], []
    for _ in range(9):
        begun = time.thread_time()
        assert not selector.matches({"x": text})
        took.append(time.thread_time() - begun)
        begun = time.thread_time()
        for _ in range(SEARCHES_MAX):
            for _ in text:
                pass
        loops.append(time.thread_time() - begun)
    assert min(took) < 10 * min(loops)
