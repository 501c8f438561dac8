"""The tokens of a selector, each with its position."""

from __future__ import annotations

import re

from qos.core.quick_enum import QuickEnum
from qos.core.record import record

__all__ = ["TEXT_CHARS_MAX", "SelectorError", "Token", "TokenKind", "tokens_of"]

#: The length of a selector. It bounds everything that is made of it, and has room for
#: all that somebody would write by hand.
TEXT_CHARS_MAX = 1024


class SelectorError(ValueError):
    """A text that is no selector.

    Attributes:
        text: what is wrong, in a few words.
        position: of the character where it is wrong; the first one is 0.
    """

    def __init__(self, text: str, position: int) -> None:
        super().__init__(f"{text} (at character {position + 1})")
        self.text = text
        self.position = position

    def __reduce__(self) -> tuple[type[SelectorError], tuple[str, int]]:
        """Pickled by its arguments: the message is made of both."""
        return type(self), (self.text, self.position)


class TokenKind(QuickEnum):
    """The kinds of tokens; the values are for texts of errors."""

    KEYWORD = "keyword"
    NAME = "name"
    STRING = "string"
    INTEGER = "integer"
    FLOAT = "float"
    SIGN = "sign"
    END = "end"


@record(frozen=True, slots=True)
class Token:
    """A token.

    Attributes:
        kind: see TokenKind.
        text: a keyword in capitals; a name or a string without its quotes; a number
            without its suffix; signs as they are.
        position: of its first character.
    """

    kind: TokenKind
    text: str
    position: int

    def __str__(self) -> str:
        if self.kind is TokenKind.END:
            return "the end"
        return f"'{self.text}'" if self.kind is TokenKind.STRING else self.text


_KEYWORDS = frozenset(
    {
        *("AND", "OR", "NOT", "TRUE", "FALSE", "IS", "NULL"),
        *("BETWEEN", "IN", "LIKE", "ESCAPE"),
    }
)

# Each alternative begins with another character, so nothing is tried twice; none can
# match in two ways.
_TOKEN = re.compile(
    r"""
      (?P<name> [A-Za-z_$][A-Za-z0-9_$.]* )
    | "(?P<quoted> [^"]+ )"
    | '(?P<string> [^']*+ (?: '' [^']*+ )*+ )'
    | (?P<float> (?: [0-9]+\.[0-9]* | \.[0-9]+ ) (?: [eE][+-]?[0-9]+ )? [dDfF]?
               | [0-9]+ [eE][+-]?[0-9]+ [dDfF]? | [0-9]+ [dDfF] )
    | (?P<integer> [0-9]+ ) [lL]?
    | (?P<sign> <> | <= | >= | [=<>+\-*/(),] )
    """,
    re.VERBOSE,
)
_BLANK = re.compile(r"[ \t\r\n]*")
_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_$.")


def tokens_of(text: str) -> list[Token]:
    """The tokens of a selector; the last one is its end.

    Raises:
        SelectorError: the text is too long, or a character is in no token.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise SelectorError(
            f"a selector has at most {TEXT_CHARS_MAX} characters", TEXT_CHARS_MAX
        )
    tokens = []
    position = _blank_end(text, 0)
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise SelectorError(_unreadable(text[position]), position)
        tokens.append(_token(match))
        end = match.end()
        if tokens[-1].kind in _NUMBERS and text[end : end + 1] in _WORD:
            raise SelectorError(f"{text[position : end + 1]!r} is no number", position)
        position = _blank_end(text, end)
    return [*tokens, Token(TokenKind.END, "", len(text))]


_NUMBERS = frozenset({TokenKind.INTEGER, TokenKind.FLOAT})


def _blank_end(text: str, position: int) -> int:
    blank = _BLANK.match(text, position)
    assert blank is not None
    return blank.end()


def _unreadable(character: str) -> str:
    if character in "'\"":
        return f"the text that begins with {character} has no end"
    return f"a selector has no {character!r} here"


def _token(match: re.Match[str]) -> Token:
    group, position = match.lastgroup, match.start()
    assert group is not None
    text = match[group]
    if group == "name" and text.upper() in _KEYWORDS:
        return Token(TokenKind.KEYWORD, text.upper(), position)
    if group in {"name", "quoted"}:
        return Token(TokenKind.NAME, text, position)
    if group == "string":
        return Token(TokenKind.STRING, text.replace("''", "'"), position)
    if group == "float":
        return Token(TokenKind.FLOAT, text.rstrip("dDfF"), position)
    return Token(TokenKind(group), text, position)
