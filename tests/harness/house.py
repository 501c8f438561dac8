"""The size of the house, in figures: `make house`.

What a newcomer has to find his way through: lines and files that are shipped, functions and
files that are too long, local names that say nothing, and modules on the way of a message.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Figures", "Names", "figures", "main", "names_by_package", "vague_names"]

TOP = Path(__file__).parents[2]

#: What is in the wheel.
SHIPPED = ("qos", "plugins")

#: Pronouns and bare participles: as a name they say nothing of what they stand for.
VAGUE = frozenset(
    [
        "it",
        "its",
        "he",
        "his",
        "they",
        "them",
        "their",
        "those",
        "these",
        "this",
        "that",
        "there",
        "here",
        "one",
        "ones",
        "other",
        "others",
        "each",
        "every",
        "all",
        "both",
        "none",
        "some",
        "what",
        "who",
        "whose",
        "which",
        "where",
        "told",
        "asked",
        "seen",
        "known",
        "found",
        "said",
        "late",
        "given",
        "taken",
        "made",
        "done",
        "gone",
        "kept",
        "left",
        "held",
        "wanted",
        "needed",
        "used",
        "got",
        "come",
        "began",
        "begun",
        "meant",
        "shown",
        "heard",
        "named",
        "called",
        "looked",
        "tried",
        "sent",
        "stored",
        "written",
        "read",
        "ended",
    ]
)

FILE_LINES_MAX, FUNCTION_LINES_MAX = 400, 50


class Figures(NamedTuple):
    """The figures of the shipped code.

    Attributes:
        files: of Python.
        lines: of them.
        long_files: with more than FILE_LINES_MAX lines.
        long_functions: with more than FUNCTION_LINES_MAX lines.
        names: local names, each once in its function.
        vague: of these, the ones in VAGUE.
    """

    files: int
    lines: int
    long_files: int
    long_functions: int
    names: int
    vague: Counter[str]


class Names(NamedTuple):
    """The local names of a package.

    Attributes:
        total: of them, each once in its function.
        vague: the ones in VAGUE: file, line and function of each.
    """

    total: int
    vague: list[str]

    @property
    def share(self) -> float:
        """The vague ones among them, from 0 to 1."""
        return len(self.vague) / self.total if self.total else 0.0


def figures(folders: tuple[str, ...] = SHIPPED) -> Figures:
    """Count."""
    files = lines = long_files = long_functions = names = 0
    vague: Counter[str] = Counter()
    for path in sources(folders):
        text = path.read_text(encoding="utf-8")
        count = text.count("\n")
        files, lines = files + 1, lines + count
        long_files += count > FILE_LINES_MAX
        for function in functions(ast.parse(text)):
            assert function.end_lineno is not None
            long = function.end_lineno - function.lineno + 1 > FUNCTION_LINES_MAX
            long_functions += long
            local = set(local_names(function))
            names += len(local)
            vague.update(local & VAGUE)
    return Figures(files, lines, long_files, long_functions, names, vague)


def names_by_package(folders: tuple[str, ...] = SHIPPED) -> dict[str, Names]:
    """The local names of each package, see `package_of`."""
    packages: dict[str, Names] = {}
    for path in sources(folders):
        place = path.relative_to(TOP).as_posix()
        total, vague = packages.get(package_of(place), Names(0, []))
        for function in functions(ast.parse(path.read_text(encoding="utf-8"))):
            local = set(local_names(function))
            total += len(local)
            vague += [
                f"{place}:{function.lineno} {function.name}: {name}"
                for name in sorted(local & VAGUE)
            ]
        packages[package_of(place)] = Names(total, vague)
    return packages


def package_of(place: str) -> str:
    """The package of a file: two folders deep, and three in qos/core.

    Modules that are in no such folder are together, as `qos` or `qos/core`.
    """
    folders = place.split("/")[:-1]
    return "/".join(folders[: 3 if folders[:2] == ["qos", "core"] else 2])


def sources(folders: tuple[str, ...]) -> Iterator[Path]:
    """The files of Python in these folders."""
    for folder in folders:
        yield from sorted((TOP / folder).rglob("*.py"))


def vague_names(source: str) -> set[str]:
    """The local names of a module that say nothing."""
    return {
        name
        for function in functions(ast.parse(source))
        for name in local_names(function)
        if name in VAGUE
    }


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions, those inside of others too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def local_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """The names that a function gives: its arguments, and what it assigns."""
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        yield argument.arg
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def main() -> int:
    """Print the table."""
    house = figures()
    vague = house.vague.total()
    rows = (
        ("shipped files of Python", f"{house.files:,}"),
        ("shipped lines", f"{house.lines:,}"),
        (f"files over {FILE_LINES_MAX} lines", f"{house.long_files:,}"),
        (f"functions over {FUNCTION_LINES_MAX} lines", f"{house.long_functions:,}"),
        ("local names", f"{house.names:,}"),
        ("of them pronouns or participles", f"{vague:,} ({vague / house.names:.1%})"),
        (
            "the most frequent",
            ", ".join(f"{name} {count}" for name, count in house.vague.most_common(8)),
        ),
        *(
            (f"  in {package}", f"{len(names.vague):,} ({names.share:.1%})")
            for package, names in sorted(names_by_package().items())
            if names.vague
        ),
    )
    for name, figure in rows:
        sys.stdout.write(f"{name:36}{figure}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
