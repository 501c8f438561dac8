"""Oracle: lark reads the same trees by a grammar of its own."""

from __future__ import annotations

import random
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput

from qos.core.queue.selector import SelectorError
from qos.core.queue.selector.parser import tree_of

_END = r"(?![A-Za-z0-9_$.])"
_WORDS = [
    *("AND", "OR", "NOT", "TRUE", "FALSE", "IS", "NULL"),
    *("BETWEEN", "IN", "LIKE", "ESCAPE"),
]
_GRAMMAR = rf"""
?start: either
?either: both (_OR both)*
?both: inverse (_AND inverse)*
?inverse: _NOT inverse -> negated
    | total
    | total COMPARE total -> comparison
    | total _IS _NULL -> is_null
    | total _IS _NOT _NULL -> is_not_null
    | total _BETWEEN total _AND total -> between
    | total _NOT _BETWEEN total _AND total -> not_between
    | total _IN "(" STRING ("," STRING)* ")" -> among
    | total _NOT _IN "(" STRING ("," STRING)* ")" -> not_among
    | total _LIKE STRING (_ESCAPE STRING)? -> like
    | total _NOT _LIKE STRING (_ESCAPE STRING)? -> not_like
?total: product ((PLUS | MINUS) product)*
?product: unary ((TIMES | OVER) unary)*
?unary: (PLUS | MINUS) unary -> signed
    | STRING -> string
    | FLOAT -> decimal
    | INTEGER -> integer
    | _TRUE -> true
    | _FALSE -> false
    | NAME -> name
    | QUOTED -> quoted
    | "(" either ")"
COMPARE: /<>|<=|>=|=|<|>/
PLUS: "+"
MINUS: "-"
TIMES: "*"
OVER: "/"
STRING: /'([^']|'')*'(?!')/
QUOTED: /"[^"]+"/
NAME: /[A-Za-z_$][A-Za-z0-9_$.]*/
FLOAT.2: /(([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?|[0-9]+[eE][+-]?[0-9]+[dDfF]?|[0-9]+[dDfF]){_END}/
INTEGER: /[0-9]+[lL]?{_END}/
{"".join(f"_{word}.3: /{word}{_END}/i{chr(10)}" for word in _WORDS)}
%ignore /[ \t\r\n]+/
"""

_Plain = tuple[Any, ...]


def _constant(value: object) -> _Plain:
    return ("Constant", type(value).__name__, value)


def _arithmetic(first: _Plain, rest: tuple[tuple[str, _Plain], ...]) -> _Plain:
    """Zero and a sign before an integer is an integer."""
    if first == _constant(0) and len(rest) == 1:
        ((sign, (kind, *value)),) = rest
        if sign in "+-" and kind == "Constant" and value[0] == "int":
            return _constant(int(f"{sign}{value[1]}") if value[1] >= 0 else 0)
    return ("Arithmetic", first, rest)


def _text(string: str) -> str:
    return string[1:-1].replace("''", "'")


class _Plainly(Transformer[Token, _Plain]):
    """The trees of lark as plain tuples."""

    def either(self, operands: list[_Plain]) -> _Plain:
        return ("AnyOf", tuple(operands))

    def both(self, operands: list[_Plain]) -> _Plain:
        return ("All", tuple(operands))

    def negated(self, found: list[Any]) -> _Plain:
        return ("Not", found[0])

    def comparison(self, found: list[Any]) -> _Plain:
        left, sign, right = found
        return ("Comparison", str(sign), left, right)

    def is_null(self, found: list[Any]) -> _Plain:
        return ("IsNull", found[0])

    def between(self, found: list[Any]) -> _Plain:
        return ("Between", *found)

    def among(self, found: list[Any]) -> _Plain:
        operand, *strings = found
        return ("In", operand, frozenset(map(_text, strings)))

    def like(self, found: list[Any]) -> _Plain:
        operand, pattern, *escape = found
        return ("Like", operand, _text(pattern), *map(_text, escape or ["''"]))

    def is_not_null(self, found: list[Any]) -> _Plain:
        return ("Not", self.is_null(found))

    def not_between(self, found: list[Any]) -> _Plain:
        return ("Not", self.between(found))

    def not_among(self, found: list[Any]) -> _Plain:
        return ("Not", self.among(found))

    def not_like(self, found: list[Any]) -> _Plain:
        return ("Not", self.like(found))

    def total(self, found: list[Any]) -> _Plain:
        signs = map(str, found[1::2])
        return _arithmetic(found[0], tuple(zip(signs, found[2::2], strict=True)))

    product = total

    def signed(self, found: list[Any]) -> _Plain:
        return _arithmetic(_constant(0), ((str(found[0]), found[1]),))

    def string(self, found: list[Any]) -> _Plain:
        return _constant(_text(found[0]))

    def decimal(self, found: list[Any]) -> _Plain:
        return _constant(float(found[0].rstrip("dDfF")))

    def integer(self, found: list[Any]) -> _Plain:
        return _constant(int(found[0].rstrip("lL")))

    def true(self, _found: list[Any]) -> _Plain:
        return _constant(True)

    def false(self, _found: list[Any]) -> _Plain:
        return _constant(False)

    def name(self, found: list[Any]) -> _Plain:
        return ("Name", str(found[0]))

    def quoted(self, found: list[Any]) -> _Plain:
        return ("Name", str(found[0][1:-1]))


def _ours(tree: Any) -> Any:
    """Our own tree as plain tuples, without positions."""
    kind = type(tree).__name__
    if kind == "Constant":
        return _constant(tree.value)
    if kind == "tuple":
        return tuple(map(_ours, tree))
    if kind in {"str", "frozenset"}:
        return tree
    first, *values = (getattr(tree, each.name) for each in fields(tree))
    assert isinstance(first, int), "the position"
    if kind == "Arithmetic":
        return _arithmetic(_ours(values[0]), _ours(values[1]))
    return (kind, *map(_ours, values))


_LARK = Lark(_GRAMMAR, parser="lalr", lexer="basic", strict=False)


class _Texts:
    """Texts that are selectors, and texts that nearly are."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def text(self) -> str:
        words = self._condition(self._random.randrange(4))
        for _ in range(self._random.choice((0, 0, 0, 1, 2))):
            at = self._random.randrange(len(words))
            spoilt = self._random.choice((*_WORDS, *"()=<,+-*/'", "5", "n", ""))
            words[at : at + self._random.randrange(2)] = [spoilt]
        return "".join(
            each + self._random.choice(("", " ", " ", " ", "\t\n")) for each in words
        )

    def _one(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _word(self, word: str) -> str:
        return self._one(word, word, word.lower(), word.title())

    def _condition(self, depth: int) -> list[str]:
        kind = self._random.randrange(9) if depth else 9
        if kind < 3:
            word = self._word(self._one("AND", "OR"))
            return [*self._condition(depth - 1), word, *self._condition(depth - 1)]
        if kind == 3:
            return [self._word("NOT"), *self._condition(depth - 1)]
        if kind == 4:
            return ["(", *self._condition(depth - 1), ")"]
        left, negated = self._sum(2), [self._word("NOT")][: self._random.randrange(2)]
        if kind == 5:
            return [*left, self._word("IS"), *negated, self._word("NULL")]
        if kind == 6:
            words = [self._word("BETWEEN"), *self._sum(1), self._word("AND")]
            return [*left, *negated, *words, *self._sum(1)]
        if kind == 7:
            strings = ", ".join(
                self._string() for _ in range(self._random.randint(1, 3))
            )
            return [*left, *negated, self._word("IN"), "(", strings, ")"]
        if kind == 8:
            escape = [self._word("ESCAPE"), "'!'"][: 2 * self._random.randrange(2)]
            return [*left, *negated, self._word("LIKE"), self._string(), *escape]
        return [*left, self._one("=", "<>", "<", "<=", ">", ">="), *self._sum(1)]

    def _sum(self, depth: int) -> list[str]:
        kind = self._random.randrange(4) if depth else 4
        if kind == 0:
            return [*self._sum(depth - 1), self._one(*"+-*/"), *self._sum(depth - 1)]
        if kind == 1:
            return [self._one("+", "-"), *self._sum(depth - 1)]
        if kind == 2:
            return ["(", *self._sum(depth - 1), ")"]
        names = ("n", "a.b", "$x", '"a-b"', "android", "Not_this", "nullable", "TRUE")
        numbers = ("0", "7", "5L", "2.5", ".5", "1.", "1e3", "5D", "2.5e-1f")
        return [self._one(*names, *numbers, self._string())]

    def _string(self) -> str:
        return self._one("''", "'a'", "'a''b'", "'''%_'", "'a!%'", "'AND'")


def _read(text: str) -> object:
    try:
        return _Plainly().transform(_LARK.parse(text))
    except UnexpectedInput:
        return None


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**64))
def test_both_parsers_read_the_same(seed: int) -> None:
    """20 texts each: all in all 4,000."""
    texts = _Texts(seed)
    for _ in range(20):
        text = texts.text()
        try:
            found = _ours(tree_of(text)[0])
        except SelectorError as error:
            if "escape" not in error.text:  # a grammar knows nothing of it
                assert _read(text) is None, text
        else:
            assert _read(text) == found, text


def test_most_texts_are_selectors_and_many_are_not() -> None:
    """Else the agreement would say little."""
    texts = _Texts(1)
    read = [_read(texts.text()) is not None for _ in range(1000)]
    assert 500 < sum(read) < 900


@pytest.mark.parametrize("text", ["n = 'a' 'b'", "n = 'a''b'", "5x", "1.5L", "NOT"])
def test_the_grammar_reads_tokens_as_we_do(text: str) -> None:
    """Texts that two lexers easily see differently."""
    try:
        found = _ours(tree_of(text)[0])
    except SelectorError:
        found = None
    assert _read(text) == found
