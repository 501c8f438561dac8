"""`queue amqp-user` and `queue http-user`: they write the users of a gateway."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
import tempfile
from pathlib import Path

from qos.cli.output import print_json
from qos.cli.status import CommandError, Status
from qos.errors import UsageError
from qos.users import NO_PASSWORD, hashed, hashed_token, is_name, new_token

__all__ = ["run"]


async def run(arguments: argparse.Namespace) -> int:
    """Write or remove a user; see qos.cli.entry.Command."""
    path: Path = arguments.file
    name: str = arguments.name
    if not is_name(name):
        raise UsageError(f"{name!r} is neither the name of an account nor a bare JID")
    lines = _lines(path)
    rest = [line for line in lines if line.partition(":")[0].strip() != name]
    token = ""
    if arguments.remove:
        if rest == lines:
            raise CommandError(f"{path} has no user {name!r}", Status.REFUSED)
    elif getattr(arguments, "certificate", False):
        rest.append(f"{name}:{NO_PASSWORD}")
    elif getattr(arguments, "token", False):
        token = new_token()
        rest.append(f"{name}:{hashed_token(token)}")
    else:
        rest.append(f"{name}:{hashed(_password(name))}")
    _replace(path, "".join(f"{line}\n" for line in rest))
    if token:
        await print_json({"name": name, "token": token})
    return Status.DONE


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


def _password(name: str) -> str:
    """The password: asked for twice on a terminal, else the first line of stdin."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"password of {name}: ")
        if password != getpass.getpass("again: "):
            raise UsageError("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise UsageError("the password is empty")
    return password


def _replace(path: Path, content: str) -> None:
    """Replace the file as a whole: a service may read it at any time."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
