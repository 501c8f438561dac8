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

__all__ = ["Figures", "figures", "main", "vague_names"]

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


def figures(folders: tuple[str, ...] = SHIPPED) -> Figures:
    """Count."""
    files = lines = long_files = long_functions = names = 0
    vague: Counter[str] = Counter()
    for path in (path for each in folders for path in (TOP / each).rglob("*.py")):
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
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        yield each.arg
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def main() -> int:
    """Print the table."""
    found = figures()
    vague = found.vague.total()
    rows = (
        ("shipped files of Python", f"{found.files:,}"),
        ("shipped lines", f"{found.lines:,}"),
        (f"files over {FILE_LINES_MAX} lines", f"{found.long_files:,}"),
        (f"functions over {FUNCTION_LINES_MAX} lines", f"{found.long_functions:,}"),
        ("local names", f"{found.names:,}"),
        ("of them pronouns or participles", f"{vague:,} ({vague / found.names:.1%})"),
        (
            "the most frequent",
            ", ".join(f"{name} {count}" for name, count in found.vague.most_common(8)),
        ),
    )
    for name, figure in rows:
        sys.stdout.write(f"{name:36}{figure}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
