"""Selectors: their tables of truth, their types, and the places of their errors."""

from __future__ import annotations

import pickle

import pytest

from qos.core.queue.selector import SelectorError, Untyped, Value, parse

_VALUES = {"T": "b = TRUE", "F": "b = FALSE", "U": "missing = 1"}
_NAMES: dict[str, Value] = {"b": True, "n": 5, "f": 2.5, "s": "red", "yes": True}


def _truth(condition: str, names: dict[str, Value] | None = None) -> str:
    """T, F or U (unknown)."""
    names = _NAMES if names is None else names
    if parse(condition).matches(names):
        return "T"
    return "F" if parse(f"NOT ({condition})").matches(names) else "U"


@pytest.mark.parametrize(
    ("word", "table"),
    [
        ("AND", {"TT": "T", "TF": "F", "TU": "U", "FF": "F", "FU": "F", "UU": "U"}),
        ("OR", {"TT": "T", "TF": "T", "TU": "T", "FF": "F", "FU": "U", "UU": "U"}),
    ],
)
def test_and_and_or_follow_the_tables_of_three_values(
    word: str, table: dict[str, str]
) -> None:
    for pair, result in table.items():
        for one, other in (tuple(pair), tuple(reversed(pair))):
            condition = f"({_VALUES[one]}) {word} ({_VALUES[other]})"
            assert _truth(condition) == result, condition


def test_not_of_unknown_is_unknown() -> None:
    assert [_truth(f"NOT {_VALUES[each]}") for each in "TFU"] == ["F", "T", "U"]


@pytest.mark.parametrize(
    ("condition", "truth"),
    [
        # a missing name
        ("missing", "U"),
        ("missing IS NULL", "T"),
        ("missing IS NOT NULL", "F"),
        ("n IS NULL", "F"),
        ("(n + missing) IS NULL", "T"),
        ("(missing = 1) IS NULL", "T"),
        ("missing = missing", "U"),
        ("missing + 1 > 0", "U"),
        ("missing BETWEEN 1 AND 2", "U"),
        ("missing IN ('a')", "U"),
        ("missing LIKE '%'", "U"),
        ("n BETWEEN missing AND 4", "F"),
        ("n BETWEEN missing AND 6", "U"),
        ("n BETWEEN 6 AND missing", "F"),
        ("n BETWEEN 5 AND missing", "U"),
        # types
        ("n = 5.0", "T"),
        ("n = f * 2", "T"),
        ("s = 'red'", "T"),
        ("s = 'Red'", "F"),
        ("S = 'red'", "U"),
        ("s <> 'blue'", "T"),
        ("s = n", "F"),
        ("s <> n", "F"),
        ("s < n", "U"),
        ("s = 5", "F"),
        ("s > 5", "U"),
        ("b = 1", "F"),
        ("b < n", "U"),
        ("b + 1 = 2", "U"),
        ("yes", "T"),
        ("n", "U"),
        ("s AND b", "U"),
        ("b = yes", "T"),
        ("(n > 4) = b", "T"),
        ("n IN ('red')", "F"),
        ("n LIKE '5'", "F"),
        # numbers
        ("n + 2 * 3 = 11", "T"),
        ("(n + 2) * 3 = 21", "T"),
        ("n - 1 - 1 = 3", "T"),
        ("n-1 = 4", "T"),
        ("12 / n / 2 = 1", "T"),
        ("- n / 2 = -2", "T"),
        ("-n / -2 = 2", "T"),
        ("n / 2.0 = 2.5", "T"),
        ("n / 0 = 1", "U"),
        ("f / 0.0 = 1", "U"),
        ("- - n = + n", "T"),
        ("n = 5L AND f = 2.5D AND f = 2.5f AND n = 5d", "T"),
        ("f = .25e1 AND f = 25E-1 AND n = 5.", "T"),
        ("9223372036854775807 + n IS NULL", "T"),
        ("-9223372036854775808 < n", "T"),
        ("1e308 * 10 * n > 0", "U"),
        ("n BETWEEN 5 AND 5", "T"),
        ("n NOT BETWEEN 1 AND 4", "T"),
        # strings
        ("s IN ('blue', 'red')", "T"),
        ("s NOT IN ('blue')", "T"),
        ("s LIKE 'r%'", "T"),
        ("s LIKE 'r_d'", "T"),
        ("s NOT LIKE 'r_'", "T"),
        ("s = 'it''s'", "F"),
        # words in any case, names in any writing
        ("s liKe 'r%' aNd noT missing is noT nuLL", "T"),
        ('"s" = \'red\' AND "a-b" IS NULL AND $a.b_1 IS NULL', "T"),
        ('"NULL" IS NULL', "T"),
        ("\tn\r\n= 5 ", "T"),
        # constants
        ("TRUE", "T"),
        ("1 = 2", "F"),
        ("1 IS NULL", "F"),
        ("'a' IN ('a') AND 'a' LIKE '_'", "T"),
        ("1 = missing OR TRUE", "T"),
    ],
)
def test_a_condition_is_true_false_or_unknown(condition: str, truth: str) -> None:
    assert _truth(condition) == truth


@pytest.mark.parametrize(
    ("condition", "truth"),
    [
        ("x = 5", "T"),
        ("x = '5.0'", "T"),
        ("x = '5'", "F"),
        ("x <> 5", "F"),
        ("x = y", "T"),
        ("x = word", "F"),
        ("word = 'red'", "T"),
        ("word = word", "T"),
        ("word = 5", "F"),
        ("x > 4 AND x + 1 = 6", "T"),
        ("x BETWEEN 4 AND 6", "T"),
        ("word > 4", "U"),
        ("x LIKE '5%' AND x IN ('5.0')", "T"),
        ("long > 4", "U"),
        ("huge > 4", "U"),
        ("infinite > 4", "U"),
        ("blank > 4", "U"),
        ("x", "U"),
    ],
)
def test_an_untyped_text_is_a_number_where_one_is_wanted(
    condition: str, truth: str
) -> None:
    """An attribute has no type; `year='2024'` must be comparable with 2024."""
    texts = {
        "x": "5.0",
        "y": "5",
        "word": "red",
        "blank": "",
        "long": "1" * 41,
        "huge": "1" * 40,
        "infinite": "1e999",
    }
    names: dict[str, Value] = {name: Untyped(text) for name, text in texts.items()}
    assert _truth(condition, names) == truth


@pytest.mark.parametrize(
    ("text", "pattern", "matches"),
    [
        ("", "''", True),
        ("", "'%'", True),
        ("", "'_'", False),
        ("abc", "'%%c'", True),
        ("abc", "'a%b'", False),
        ("ab", "'ab%b'", False),
        ("abab", "'ab%ab'", True),
        ("aba", "'ab%ba'", False),
        ("abcbc", "'a%bc'", True),
        ("abcabc", "'%b%b%'", True),
        ("abc", "'%b%b%'", False),
        ("abc", "'_%_'", True),
        ("a", "'_%_'", False),
        ("axxbyc", "'a%b_c'", True),
        ("axxbyyc", "'a%b_c'", False),
        ("abcdef", "'a_c%'", True),
        ("abc", "'a_c%'", True),
        ("ab", "'a_c%'", False),
        ("xa_", "'%!__' ESCAPE '!'", False),
        ("x_a", "'%!__' ESCAPE '!'", True),
        ("a.c", "'a.c'", True),
        ("abc", "'a.c'", False),
        ("a\nc", "'a_c'", True),
        ("a\nc", "'a%c'", True),
        ("50%", "'50!%' ESCAPE '!'", True),
        ("500", "'50!%' ESCAPE '!'", False),
        ("a_b!", "'a!_%!!' ESCAPE '!'", True),
        ("a_b", "'_!__' ESCAPE '!'", True),
        ("x", "'!x' ESCAPE '!'", True),
        ("%", "'%%' ESCAPE '%'", True),
        ("ab", "'%%' ESCAPE '%'", False),
        ("it's", "'it''s'", True),
        ("ä€😀", "'___'", True),
    ],
)
def test_like_matches_the_whole_text(text: str, pattern: str, matches: bool) -> None:
    assert parse(f"x LIKE {pattern}").matches({"x": text}) is matches


@pytest.mark.parametrize(
    ("text", "position", "part"),
    [
        ("", 0, "expected a value, found the end"),
        ("  ", 2, "expected a value"),
        ("n >", 3, "found the end"),
        ("n > > 5", 4, "found >"),
        ("n = 5 m", 6, "expected the end, found m"),
        ("n = 5 'x'", 6, "found 'x'"),
        ("n == 5", 3, "found ="),
        ("n != 5", 2, "no '!'"),
        ("n = 'a", 4, "has no end"),
        ("n = 'a''b", 4, "has no end"),
        ('"" = 5', 0, "has no end"),
        ("n = #", 4, "no '#'"),
        ("n = 5x", 4, "'5x' is no number"),
        ("n = 1.5.2", 4, "'1.5.' is no number"),
        ("n = 1.5L", 4, "'1.5L' is no number"),
        ("n = 0x1F", 4, "is no number"),
        ("n = 9223372036854775808", 4, "64 bits"),
        ("n = -9223372036854775809", 5, "64 bits"),
        ("n = 1e999", 4, "too large"),
        ("(n = 5", 6, "expected )"),
        ("n = 5)", 5, "expected the end"),
        ("n IS 5", 5, "expected NULL"),
        ("n NOT = 5", 6, "expected BETWEEN, IN or LIKE"),
        ("n BETWEEN 1 OR 2", 12, "expected AND"),
        ("n IN 'a'", 5, "expected ("),
        ("n IN ()", 6, "expected a string"),
        ("n IN (1)", 6, "expected a string"),
        ("n IN ('a' 'b')", 10, "expected )"),
        ("n LIKE 5", 7, "expected a string"),
        ("n LIKE 'a' ESCAPE 5", 18, "expected a string"),
        ("n LIKE 'a' ESCAPE ''", 18, "one character"),
        ("n LIKE 'a' ESCAPE 'xx'", 18, "one character"),
        ("n LIKE 'ab!' ESCAPE '!'", 7, "ends with its escape"),
        ("n LIKE '!!!' ESCAPE '!'", 7, "ends with its escape"),
        ("a AND", 5, "a value"),
        ("NOT", 3, "a value"),
        ("ä = 5", 0, "no 'ä'"),
        # constants whose types can never fit
        ("1 = 'a'", 4, "a string, where a number"),
        ("'1' = 1", 6, "a number, where a string"),
        ("n = 1 AND TRUE = 1", 17, "a number, where a condition"),
        ("n + 1 = 'a'", 8, "a string, where a number"),
        ("n + 'a' = 1", 4, "a string, where a number"),
        ("-'a' = 1", 1, "a string, where a number"),
        ("n < 'a'", 4, "a string, where a number"),
        ("'a' < n", 0, "a string, where a number"),
        ("TRUE > FALSE", 0, "a condition, where a number"),
        ("n BETWEEN 'a' AND 'b'", 10, "a string, where a number"),
        ("1 IN ('a')", 0, "a number, where a string"),
        ("TRUE LIKE 'a'", 0, "a condition, where a string"),
        ("(n = 1) + 1 = 2", 1, "a condition, where a number"),
        ("'a'", 0, "a string, where a condition"),
        ("n + 1", 0, "a number, where a condition"),
        ("NOT 1", 4, "a number, where a condition"),
        ("n OR 'a'", 5, "a string, where a condition"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(
    text: str, position: int, part: str
) -> None:
    with pytest.raises(SelectorError) as caught:
        parse(text)
    error = caught.value
    assert (error.position, part in error.text) == (position, True), error
    assert str(error) == f"{error.text} (at character {position + 1})"
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (again.text, again.position) == (error.text, error.position)


def test_a_selector_is_its_text() -> None:
    """Subscribers with the same filter share its evaluations."""
    one, other = parse(" n > 5 \n"), parse("n > 5")
    assert (one, hash(one), one.text) == (other, hash(other), "n > 5")
    assert one != parse("n  > 5")
    assert one.names == {"n"}
    assert parse("a + b > a AND TRUE").names == {"a", "b"}
