"""`xmpp-qos backup`: copies stores into a folder, all that belongs to them, or nothing."""

from __future__ import annotations

import argparse
from pathlib import Path

from qos.cli.output import note, print_json
from qos.cli.status import Status
from qos.options.parser import Parser
from qos.stores.backups import back_up

__all__ = ["parser", "run"]

_EPILOG = """\
examples:
  xmpp-qos backup sqlite:/var/lib/queue/queues.db /backup/2026-11-27
  xmpp-qos backup sqlite:lamp.db sqlite:controller.db /backup/devices

A STORE is what a process names by --store or `store`. Of a queue service all files are
copied: its queues, and the messages that it has received (queues.db-messages). SQLite
copies what is there at one moment while the process goes on; a files:DIR is copied while
no process has it open.
For each file there is one line on stdout:
  {"file": "queues.db", "bytes": 40960, "sha256": "…"}
The folder must not be there, or be empty. It is there when the backup is complete.

See also: xmpp-qos restore
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        description="Copy stores, with everything that belongs to them, into a folder.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "stores", nargs="+", metavar="STORE", help="sqlite:PATH or files:DIR"
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="a new folder")
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    copied = await back_up(arguments.stores, arguments.folder)
    await print_json(
        *(
            {"file": file.name, "bytes": file.bytes, "sha256": file.sha256}
            for file in copied
        )
    )
    total = sum(file.bytes for file in copied)
    count = len(copied)
    files, are = ("1 file", "is") if count == 1 else (f"{count} files", "are")
    note(f"{files}, {total:,} bytes, {are} in {arguments.folder}")
    return Status.DONE
