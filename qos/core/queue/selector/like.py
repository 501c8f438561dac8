"""LIKE: patterns with `%` for any text and `_` for any character.

Not by `re`, which tries the ways to spread a text over several `%` one after another:
20 of them and 29 characters took seconds. Here all ways are followed at once, as the
bits of a whole number, so the time is linear in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

__all__ = ["is_searched", "like"]


def is_searched(pattern: str, escape: str) -> bool:
    """Whether each character of a text takes a step: there is a `_` after a `%`."""
    signs = [each for each, itself in _pieces(pattern, escape) if not itself]
    return "_" in signs[signs.index("%") :] if "%" in signs else False


def _pieces(pattern: str, escape: str) -> Iterator[tuple[str, bool]]:
    """The characters of a pattern, each with whether it stands for itself.

    Args:
        pattern: as it was written; an escape character is not its last one.
        escape: the escape character, or ''.
    """
    characters = iter(pattern)
    for each in characters:
        if each == escape:
            yield next(characters), True
        else:
            yield each, each not in "%_"


def like(pattern: str, escape: str) -> Callable[[str], bool]:
    """A function that says whether a text has this pattern."""
    made = list(_pieces(pattern, escape))
    if ("_", False) in made:
        return _by_character(made)
    parts = [""]
    for each, itself in made:
        if itself:
            parts[-1] += each
        else:
            parts.append("")
    return _by_part(parts)


def _by_part(parts: list[str]) -> Callable[[str], bool]:
    """Search for the texts between the `%`, each as early as possible."""
    if len(parts) == 1:
        return parts[0].__eq__
    first, *between, last = parts
    length = len(first) + len(last)

    def matches(text: str) -> bool:
        if not (text.startswith(first) and text.endswith(last)):
            return False
        start, end = len(first), len(text) - len(last)
        for part in between:
            found = text.find(part, start, end)
            if found < 0:
                return False
            start = found + len(part)
        return len(text) >= length

    return matches


def _by_character(made: list[tuple[str, bool]]) -> Callable[[str], bool]:
    """Bit n of `reached` says that the text so far can be the first n characters."""
    takes: dict[str, int] = {}
    takes_any = stays = at = 0
    for each, itself in made:
        if itself:
            takes[each] = takes.get(each, 0) | 1 << at
        elif each == "_":
            takes_any |= 1 << at
        else:
            stays |= 1 << at
            continue
        at += 1
    whole = 1 << at
    # Its last character is a `%`, which takes the rest of the text.
    anything = stays & whole

    def matches(text: str) -> bool:
        reached = 1
        for each in text:
            passed = reached & (takes.get(each, 0) | takes_any)
            reached = passed << 1 | reached & stays
            if not reached or reached & anything:
                break
        return bool(reached & whole)

    return matches
