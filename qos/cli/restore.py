"""`xmpp-qos restore`: copies a backup back, as a whole."""

from __future__ import annotations

import argparse
from pathlib import Path

from qos.cli.output import note, print_json
from qos.cli.status import Status
from qos.options.parser import Parser
from qos.stores.backups import restore

__all__ = ["parser", "run"]

_EPILOG = """\
example:
  xmpp-qos restore /backup/2026-11-27 /var/lib/queue

All files are checked first: if one is missing, or is not what was written, nothing is
restored. No file is written over: move the old ones away.
A store that comes back has forgotten what was done since the backup. Messages that were
delivered in the meantime may be sent or handed over again, and work that was done is done
again. After the loss of a device it is mostly better to begin with an empty store.

See also: xmpp-qos backup
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        description="Copy all stores of a backup into a folder.",
        epilog=_EPILOG,
    )
    parser.add_argument("backup", type=Path, metavar="DIR", help="made by backup")
    parser.add_argument("to", type=Path, metavar="FOLDER", help="where they belong")
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    copied = restore(arguments.backup, arguments.to)
    await print_json(*({"file": file.name, "bytes": file.bytes} for file in copied))
    count = len(copied)
    files, are = ("1 file", "is") if count == 1 else (f"{count} files", "are")
    note(f"{files} {are} in {arguments.to}; what was done since is forgotten")
    return Status.DONE
