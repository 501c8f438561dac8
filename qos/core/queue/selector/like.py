"""LIKE: patterns with `%` for any text and `_` for any character.

Not by `re`, which tries the ways to spread a text over several `%` one after another:
20 of them and 29 characters took seconds. Here each part between two `%` is searched for
once, as early in the text as possible. A part with `_` is searched for at all places at
once: a whole number has a bit for each place of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

__all__ = ["is_searched", "like"]

#: A character that occurs more often than this is looked for in the whole text at once.
_RARE = 64

#: The bytes of a character in UTF-32, lowest first, without the one that is always 0.
_BYTES = range(3)


def is_searched(pattern: str, escape: str) -> bool:
    """Whether the places of a text are searched one by one: there is a `_` after a `%`."""
    signs = [
        character for character, literal in _pieces(pattern, escape) if not literal
    ]
    return "_" in signs[signs.index("%") :] if "%" in signs else False


def _pieces(pattern: str, escape: str) -> Iterator[tuple[str, bool]]:
    """The characters of a pattern, each with whether it stands for itself.

    Args:
        pattern: as it was written; an escape character is not its last one.
        escape: the escape character, or ''.
    """
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            yield next(characters), True
        else:
            yield character, character not in "%_"


def like(pattern: str, escape: str) -> Callable[[str], bool]:
    """A function that says whether a text has this pattern."""
    parts: list[list[str | None]] = [[]]
    for character, literal in _pieces(pattern, escape):
        if literal:
            parts[-1].append(character)
        elif character == "_":
            parts[-1].append(None)
        else:
            parts.append([])
    if len(parts) == 1:
        return _whole(_part(parts[0]))
    first, *between, last = map(_part, parts)
    return _spread(first, [part for part in between if part.length], last)


class _Text:
    """A text in which parts of a pattern are searched for."""

    __slots__ = ("_places", "_planes", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._places: dict[str, int] = {}
        # The bytes of all characters, by their number; those that are 0 are left out.
        self._planes: dict[int, bytes] = {}

    def places(self, character: str) -> int:
        """The places of a character: bit n is set if it is number n of the text."""
        places = self._places.get(character)
        if places is None:
            rare = self.text.count(character) <= _RARE
            find = self._find if rare else self._compare
            places = self._places[character] = find(character)
        return places

    def _find(self, character: str) -> int:
        bits = bytearray(len(self.text) // 8 + 1)
        at = self.text.find(character)
        while at >= 0:
            bits[at >> 3] |= 1 << (at & 7)
            at = self.text.find(character, at + 1)
        return int.from_bytes(bits, "little")

    def _compare(self, character: str) -> int:
        if not self._planes:
            # Backwards: the first digit of a number is its highest bit.
            units = self.text[::-1].encode("utf-32-le", "surrogatepass")
            planes = {number: units[number::4] for number in _BYTES}
            self._planes = {
                number: plane for number, plane in planes.items() if any(plane)
            }
        places = -1
        for number, plane in self._planes.items():
            byte = ord(character) >> 8 * number & 0xFF
            is_it = b"0" * byte + b"1" + b"0" * (255 - byte)
            places &= int(plane.translate(is_it), 2)
        return places


class _Part:
    """A part of a pattern between two `%`, without `_`."""

    def __init__(self, text: str) -> None:
        self.length = len(text)
        self._text = text

    def is_at(self, text: str, at: int) -> bool:
        """Whether it begins here."""
        return text.startswith(self._text, at)

    def find(self, text: _Text, start: int, end: int) -> int:
        """The first place where it is, between these; -1: there is none."""
        return text.text.find(self._text, start, end)


class _PartWithAny(_Part):
    """A part of a pattern between two `%`, with `_`."""

    def __init__(self, part: list[str | None]) -> None:
        super().__init__("_" * len(part))
        self._characters = [
            (offset, character)
            for offset, character in enumerate(part)
            if character is not None
        ]

    def is_at(self, text: str, at: int) -> bool:
        """See _Part."""
        return all(
            text[at + offset] == character for offset, character in self._characters
        )

    def find(self, text: _Text, start: int, end: int) -> int:
        """See _Part."""
        if end - start < self.length:
            return -1
        # A bit for each place where the part may begin.
        begins = (1 << end - self.length + 1) - (1 << start)
        for offset, character in self._characters:
            begins &= text.places(character) >> offset
            if not begins:
                return -1
        return (begins & -begins).bit_length() - 1


def _part(characters: list[str | None]) -> _Part:
    text = "".join(character or "" for character in characters)
    return _Part(text) if len(text) == len(characters) else _PartWithAny(characters)


def _whole(part: _Part) -> Callable[[str], bool]:
    """A pattern without `%`."""

    def matches(text: str) -> bool:
        return len(text) == part.length and part.is_at(text, 0)

    return matches


def _spread(first: _Part, between: list[_Part], last: _Part) -> Callable[[str], bool]:
    """A pattern with `%`: each part as early as possible."""
    length = first.length + sum(part.length for part in between) + last.length

    def matches(text: str) -> bool:
        end = len(text) - last.length
        if len(text) < length or not (first.is_at(text, 0) and last.is_at(text, end)):
            return False
        start, searched = first.length, _Text(text)
        for part in between:
            position = part.find(searched, start, end)
            if position < 0:
                return False
            start = position + part.length
        return True

    return matches
