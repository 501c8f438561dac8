"""The folders of `xmpp-qos audit`: checked, and in the form of the pipeline.

Nothing here needs Spark: a wrong name is told before Spark starts.
"""

from __future__ import annotations

import argparse
import os
import re

from qos.audit.locations import for_people, local_path, whole_url, without_links
from qos.cli.output import note
from qos.errors import UsageError
from qos.jids import normal_jid

__all__ = ["journals_of", "out_of"]

#: The folder of a follower's own data in OUT; see qos.audit.follow_lock.
_FOLLOW = ".follow"


def journals_of(arguments: argparse.Namespace) -> list[str]:
    """The journals in the form that the pipeline expects; see qos.audit.journals.

    One that cannot be read is a problem in the report. A warning on stderr names it: its
    name may be a typing mistake.

    Raises:
        UsageError: none of them can be read, or one is wrong in another way.
    """
    journals: dict[str, tuple[str, str]] = {}
    unread: list[str] = []
    for text in arguments.journals:
        node, folder = _node_and_folder(text)
        unread += _why_unread(folder, arguments)
        folder = _folder(folder)
        journal = f"{node}={folder}" if node else folder
        # The same folder may be given by its name, and by that of a link to it.
        place = without_links(folder)
        if journals.setdefault(place, (node, journal))[0] != node:
            raise UsageError(
                f"{text}: {for_people(folder)} is given twice, not as of the same node"
            )
    if len(unread) == len(arguments.journals):
        raise UsageError("; ".join(unread))
    for reason in dict.fromkeys(unread):
        note(f"{reason}; it is left out, and a problem in the report")
    return [journal for _, journal in journals.values()]


def out_of(arguments: argparse.Namespace) -> str:
    """The folder for tables and report; it is made if necessary.

    Raises:
        UsageError: there cannot be such a folder, or it may not be written.
    """
    text: str = arguments.out
    path = local_path(text)
    if path is None:
        return text
    if not text:
        raise UsageError("--out: which folder?")
    if "\\" in str(path.resolve()):
        raise UsageError(
            rf"--out {text}: with a \ in its name no Delta table can be in it: give "
            "another folder"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"--out {text}: it is a file, and no folder") from None
    except OSError as error:
        raise UsageError(f"--out {text}: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"--out {text}: may not be written")
    return whole_url(_utf8(f"--out {text}", str(path.resolve())))


def _node_and_folder(text: str) -> tuple[str, str]:
    """The two parts of NODE=DIR; the first is empty for a folder without a node."""
    if _is_folder(text):
        return "", text
    for sign in re.finditer("=", text):
        name, folder = text[: sign.start()], text[sign.end() :]
        if _is_folder(folder):
            try:
                return normal_jid(name), folder
            except ValueError:
                raise UsageError(
                    f"{text}: {name!r} is no JID: NODE=DIR, such as "
                    "lamp@example.org/1=journals/lamp"
                ) from None
    # The folder of a node does not exist, or no folder has the whole text as its name.
    name, _, folder = text.partition("=")
    if "@" not in name or not folder:
        return "", text
    try:
        return normal_jid(name), folder
    except ValueError:
        return "", folder


def _is_folder(text: str) -> bool:
    if re.match("(?!file:)[A-Za-z][A-Za-z0-9+.-]*://", text):
        return True
    path = local_path(text)
    return bool(text) and path is not None and os.path.isdir(path)


def _folder(text: str) -> str:
    """The folder of a journal in the form that the pipeline expects.

    Links in its name are followed at each look: they may be moved meanwhile.
    """
    path = local_path(text)
    if path is None:
        return text
    # Path.resolve raises an error at a link to itself.
    name = os.path.realpath(path) if ".." in path.parts else str(path.absolute())
    return whole_url(_utf8(text, name))


def _why_unread(text: str, arguments: argparse.Namespace) -> list[str]:
    """The sentence that says why a folder is no journal that can be read, if it is none.

    Raises:
        UsageError: the name is empty.
    """
    # Path("") is the current folder, but "" is more likely an unset variable.
    if not text:
        raise UsageError(f"{text}: there is no such folder")
    path = local_path(text)
    # A mount that was there when a follower began may be away for a while.
    if path is None or (arguments.follow and _is_begun(arguments.out)):
        return []
    try:
        if not path.is_dir():
            return [f"{text}: there is no such folder"]
        names = os.listdir(path)
    except OSError as error:
        return [f"{text}: may not be read: {error.strerror}"]
    has_days = any(name.startswith("date=") for name in (path.name, *names))
    # A followed folder may still be empty: its first day may come later.
    if not has_days and not arguments.follow:
        return [f"{text}: no journal: there is no date=… folder in it"]
    if not os.access(path, os.R_OK | os.X_OK):
        return [f"{text}: may not be read"]
    return []


def _is_begun(out: str) -> bool:
    """Whether an earlier start with --follow has begun this folder on this machine."""
    path = local_path(out)
    return bool(out) and path is not None and (path / _FOLLOW).is_dir()


def _utf8(text: str, folder: str) -> str:
    try:
        folder.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{os.fsencode(text).decode(errors='backslashreplace')}: its name is not "
            "UTF-8, and Spark cannot have it: rename the folder, or give a link to it"
        ) from None
    return folder
