"""The names of journals.

A folder, or `NODE=DIR` for a folder that is tied to a node.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from qos.audit.foreign_lines import Tied

__all__ = ["tied_folders", "with_folder"]

#: An absolute path, or a URI.
_FOLDER = r"/|[A-Za-z][A-Za-z0-9+.-]*:/"
_TIED = re.compile(
    rf"(?!{_FOLDER})(?P<node>.+?)=(?P<folder>(?:{_FOLDER}).*)", re.DOTALL
)


def tied_folders(journals: Iterable[str]) -> tuple[list[str], Tied]:
    """The folders of journals, and those of them that are tied to a node.

    Args:
        journals: folders as absolute paths or URIs, each perhaps after `NODE=`.
    """
    folders, tied = [], []
    for journal in journals:
        match = _TIED.fullmatch(journal)
        if match is None:
            folders.append(journal)
        else:
            folders.append(match["folder"])
            tied.append((match["folder"], match["node"]))
    return folders, Tied(tuple(tied))


def with_folder(journal: str, name_of: Callable[[str], str]) -> str:
    """The same journal, with another name of its folder, made of the present one."""
    match = _TIED.fullmatch(journal)
    if match is None:
        return name_of(journal)
    return f"{match['node']}={name_of(match['folder'])}"
