"""The parser of selectors: recursive descent, with a position in each error.

::

    or        := and ("OR" and)*
    and       := not ("AND" not)*
    not       := "NOT" not | predicate
    predicate := sum [ compare sum | "IS" ["NOT"] "NULL"
                     | ["NOT"] "BETWEEN" sum "AND" sum
                     | ["NOT"] "IN" "(" string ("," string)* ")"
                     | ["NOT"] "LIKE" string ["ESCAPE" string] ]
    compare   := "=" | "<>" | "<" | "<=" | ">" | ">="
    sum       := product (("+" | "-") product)*
    product   := unary (("*" | "/") unary)*
    unary     := ("+" | "-") unary | atom
    atom      := string | number | "TRUE" | "FALSE" | name | "(" or ")"
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from qos.core.queue.selector.like import is_searched
from qos.core.queue.selector.tokens import SelectorError, Token, TokenKind, tokens_of
from qos.core.queue.selector.tree import (
    All,
    AnyOf,
    Arithmetic,
    Between,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Name,
    Not,
    Tree,
)
from qos.core.queue.selector.values import COMPARISONS, INTEGERS

__all__ = ["DEPTH_MAX", "IN_MAX", "SEARCHES_MAX", "TERMS_MAX", "tree_of"]

#: The names in a selector, each as often as it stands there: they are what an
#: evaluation costs, and all the rest is bounded by the length.
TERMS_MAX = 64

#: The depth of parentheses, NOT and signs, each of which is a recursion here and in the
#: evaluation.
DEPTH_MAX = 32

#: The patterns with a `_` after a `%`: a tenth of a millisecond each for the longest text
#: that an item can have. All others are ten times as fast.
SEARCHES_MAX = 4

#: The strings of one IN.
IN_MAX = 256


def tree_of(text: str) -> tuple[Tree, frozenset[str]]:
    """The syntax tree of a selector, and the names in it.

    Raises:
        SelectorError: the text is no selector, or is over a limit.
    """
    parser = _Parser(tokens_of(text))
    return parser.whole(), frozenset(parser.names)


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = iter(tokens)
        self._next = next(self._tokens)
        self._depth = self._searches = 0
        self.names: list[str] = []

    def whole(self) -> Tree:
        tree = self._or()
        if self._next.kind is not TokenKind.END:
            raise self._unexpected("the end")
        return tree

    # -- tokens ------------------------------------------------------------

    def _take(self) -> Token:
        token = self._next
        self._next = next(self._tokens, token)
        return token

    def _is(self, kind: TokenKind, *texts: str) -> bool:
        return self._next.kind is kind and self._next.text in texts

    def _word(self, word: str) -> bool:
        """Take this keyword, if it is the next token."""
        matches = self._is(TokenKind.KEYWORD, word)
        if matches:
            self._take()
        return matches

    def _need(self, kind: TokenKind, text: str) -> None:
        if not self._is(kind, text):
            raise self._unexpected(text)
        self._take()

    def _string(self) -> Token:
        if self._next.kind is not TokenKind.STRING:
            raise self._unexpected("a string")
        return self._take()

    def _unexpected(self, expected: str) -> SelectorError:
        return SelectorError(
            f"expected {expected}, found {self._next}", self._next.position
        )

    @contextmanager
    def _deeper(self) -> Iterator[int]:
        """One level deeper; the position of the next token."""
        if self._depth == DEPTH_MAX:
            raise SelectorError(
                f"a selector is at most {DEPTH_MAX} levels deep", self._next.position
            )
        self._depth += 1
        yield self._next.position
        self._depth -= 1

    # -- conditions --------------------------------------------------------

    def _or(self) -> Tree:
        position = self._next.position
        operands = [self._and()]
        while self._word("OR"):
            operands.append(self._and())
        return operands[0] if len(operands) == 1 else AnyOf(position, tuple(operands))

    def _and(self) -> Tree:
        position = self._next.position
        operands = [self._not()]
        while self._word("AND"):
            operands.append(self._not())
        return operands[0] if len(operands) == 1 else All(position, tuple(operands))

    def _not(self) -> Tree:
        if not self._is(TokenKind.KEYWORD, "NOT"):
            return self._predicate()
        with self._deeper() as position:
            self._take()
            return Not(position, self._not())

    def _predicate(self) -> Tree:
        position = self._next.position
        operand = self._sum()
        if self._is(TokenKind.SIGN, *COMPARISONS):
            sign = self._take().text
            return Comparison(position, sign, operand, self._sum())
        if self._word("IS"):
            negated = self._word("NOT")
            self._need(TokenKind.KEYWORD, "NULL")
            condition: Tree = IsNull(position, operand)
            return Not(position, condition) if negated else condition
        negated = self._word("NOT")
        for word, test in self._tests().items():
            if self._word(word):
                condition = test(position, operand)
                return Not(position, condition) if negated else condition
        if negated:
            raise self._unexpected("BETWEEN, IN or LIKE")
        return operand

    def _tests(self) -> dict[str, Callable[[int, Tree], Tree]]:
        return {"BETWEEN": self._between, "IN": self._in, "LIKE": self._like}

    def _between(self, position: int, operand: Tree) -> Tree:
        least = self._sum()
        self._need(TokenKind.KEYWORD, "AND")
        return Between(position, operand, least, self._sum())

    def _in(self, position: int, operand: Tree) -> Tree:
        self._need(TokenKind.SIGN, "(")
        strings = [self._string().text]
        while self._is(TokenKind.SIGN, ","):
            self._take()
            if len(strings) == IN_MAX:
                raise SelectorError(
                    f"IN has at most {IN_MAX} strings", self._next.position
                )
            strings.append(self._string().text)
        self._need(TokenKind.SIGN, ")")
        return In(position, operand, frozenset(strings))

    def _like(self, position: int, operand: Tree) -> Tree:
        pattern, escape = self._string(), ""
        if self._word("ESCAPE"):
            escape = self._escape(pattern)
        self._searches += is_searched(pattern.text, escape)
        if self._searches > SEARCHES_MAX:
            raise SelectorError(
                f"a selector has at most {SEARCHES_MAX} patterns with _ after %",
                pattern.position,
            )
        return Like(position, operand, pattern.text, escape)

    def _escape(self, pattern: Token) -> str:
        escape = self._string()
        if len(escape.text) != 1:
            raise SelectorError("an escape character is one character", escape.position)
        if pattern.text.replace(2 * escape.text, "").endswith(escape.text):
            raise SelectorError(
                "the pattern ends with its escape character", pattern.position
            )
        return escape.text

    # -- values ------------------------------------------------------------

    def _sum(self) -> Tree:
        return self._arithmetic(self._product, "+", "-")

    def _product(self) -> Tree:
        return self._arithmetic(self._unary, "*", "/")

    def _arithmetic(self, operand: Callable[[], Tree], *signs: str) -> Tree:
        position = self._next.position
        first, rest = operand(), []
        while self._is(TokenKind.SIGN, *signs):
            rest.append((self._take().text, operand()))
        return Arithmetic(position, first, tuple(rest)) if rest else first

    def _unary(self) -> Tree:
        if not self._is(TokenKind.SIGN, "+", "-"):
            return self._atom()
        with self._deeper() as position:
            sign = self._take().text
            if self._next.kind is TokenKind.INTEGER:
                # With its sign: the least integer has no positive counterpart.
                return Constant(position, self._integer(sign))
            zero = Constant(position, 0)
            return Arithmetic(position, zero, ((sign, self._unary()),))

    def _atom(self) -> Tree:
        kind, position = self._next.kind, self._next.position
        if kind is TokenKind.NAME:
            if len(self.names) == TERMS_MAX:
                raise SelectorError(
                    f"a selector has at most {TERMS_MAX} names", position
                )
            self.names.append(self._next.text)
            return Name(position, self._take().text)
        if kind is TokenKind.STRING:
            return Constant(position, self._take().text)
        if kind is TokenKind.INTEGER:
            return Constant(position, self._integer("+"))
        if kind is TokenKind.FLOAT:
            return Constant(position, self._float())
        if self._is(TokenKind.KEYWORD, "TRUE", "FALSE"):
            return Constant(position, self._take().text == "TRUE")
        if not self._is(TokenKind.SIGN, "("):
            raise self._unexpected("a value")
        with self._deeper():
            self._take()
            tree = self._or()
            self._need(TokenKind.SIGN, ")")
        return tree

    def _integer(self, sign: str) -> int:
        token = self._take()
        number = int(sign + token.text)
        if number not in INTEGERS:
            raise SelectorError("an integer has 64 bits", token.position)
        return number

    def _float(self) -> float:
        token = self._take()
        number = float(token.text)
        if not math.isfinite(number):
            raise SelectorError("the number is too large", token.position)
        return number
