"""A selector is code from strangers: nothing in it may cost much."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qos.core.queue.selector import SelectorError, parse
from qos.core.queue.selector.parser import DEPTH_MAX, IN_MAX, SEARCHES_MAX, TERMS_MAX
from qos.core.queue.selector.tokens import TEXT_CHARS_MAX
from steps_taken import steps_of


def _nested(before: str, after: str = "") -> tuple[str, str, int]:
    return (
        before * DEPTH_MAX + "n" + after * DEPTH_MAX,
        before * (DEPTH_MAX + 1) + "n" + after * (DEPTH_MAX + 1),
        len(before) * DEPTH_MAX,
    )


_SIGNS = "1 = " + "- " * DEPTH_MAX
_IN = "n IN (" + "''," * (IN_MAX - 1) + "''"
_SEARCHES = " OR ".join(["n LIKE '%_'"] * SEARCHES_MAX)
_NAMES = " OR ".join(["n"] * TERMS_MAX)


@pytest.mark.parametrize(
    ("allowed", "refused", "position"),
    [
        ("TRUE".ljust(TEXT_CHARS_MAX), "TRUE".ljust(TEXT_CHARS_MAX + 1), 1024),
        _nested("(", ")"),
        _nested("NOT "),
        (_SIGNS + "n", _SIGNS + "-n", len(_SIGNS)),
        (_IN + ")", _IN + ",'')", len(_IN) + 1),
        (
            # Neither a pattern without such a search counts, nor what is escaped.
            _SEARCHES + " OR n LIKE '_%' OR n LIKE '%!_' ESCAPE '!' OR n LIKE '_'",
            _SEARCHES + " OR n LIKE '%a_'",
            len(_SEARCHES) + 11,
        ),
        (_NAMES, _NAMES + " OR n", len(_NAMES) + 4),
    ],
    ids=["characters", "parentheses", "not", "signs", "in", "searches", "names"],
)
def test_each_limit_is_exact_and_names_the_position(
    allowed: str, refused: str, position: int
) -> None:
    parse(allowed).matches({})
    with pytest.raises(SelectorError, match=r"at most") as caught:
        parse(refused)
    assert caught.value.position == position


def test_the_levels_are_those_that_are_open() -> None:
    """Many parentheses one after another are not deep."""
    assert parse(" AND ".join(["(NOT (FALSE))"] * 50)).matches({})


@pytest.mark.parametrize(
    "pattern", ["%" * 500 + "b", "%_" * 250, "%a" * 250 + "b", "_%" * 200 + "b"]
)
def test_no_pattern_is_slow(pattern: str) -> None:
    """By `re`, 20 `%` against 29 characters took seconds; this takes a millisecond."""
    selector = parse(f"x LIKE '{pattern}'")
    names = {"x": "a" * 8192}
    assert steps_of(lambda: selector.matches(names)) < 4 * 8192


def test_no_selector_is_slow() -> None:
    """Whatever a stranger writes, for the longest text that an item can have."""
    searched = " OR ".join(["x LIKE '%_b'"] * SEARCHES_MAX)
    parts = " OR ".join(["x LIKE '%b%'"] * (TERMS_MAX - SEARCHES_MAX - 6))
    selector = parse(f"{searched} OR {parts}")
    names = {"x": "a" * 8192}
    assert not selector.matches(names)
    assert steps_of(lambda: selector.matches(names)) < 4 * 8192


_PIECES = st.sampled_from(
    [
        *("a", "b", "n", '"x y"', "'a%'", "'_'", "''", "1", "2.5", "1e9", ".5", "7L"),
        *("AND", "OR", "NOT", "IS", "NULL", "IN", "LIKE", "ESCAPE", "BETWEEN"),
        *("TRUE", "FALSE", "=", "<>", "<", ">=", "+", "-", "*", "/", "(", ")", ","),
    ]
)
_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)


@given(
    st.one_of(
        st.text(max_size=60),
        st.text("'\"%_!()=<> 1eE.LNOTnot", max_size=200),
        st.lists(_PIECES, max_size=40).map(" ".join),
    ),
    st.dictionaries(st.sampled_from(["a", "b", "n", "x y"]), _VALUES),
)
@example("'" + "''" * 400, {})
@example("\x00", {})
@example("n = \ud800", {})
@example("1" * 1024, {})
@example("1e" + "9" * 1000, {})
def test_any_text_is_a_selector_or_an_error_in_it(
    text: str, names: dict[str, bool | int | float | str | None]
) -> None:
    there = {name: each for name, each in names.items() if each is not None}
    try:
        found: bool | SelectorError = parse(text).matches(there)
    except SelectorError as error:
        found = error
    if isinstance(found, SelectorError):
        assert 0 <= found.position <= len(text)
        assert len(found.text) < 1200
    else:
        assert found in {True, False}
