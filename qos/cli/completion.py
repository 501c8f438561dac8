"""`xmpp-qos completion`: a script that completes words of the command in a shell.

The extra `[completion]`. The script holds all words, so that completing runs no Python,
and other commands know nothing of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from qos.cli.output import print_text
from qos.cli.status import Status
from qos.errors import UsageError
from qos.extras import how_to_install
from qos.options.parser import Parser

__all__ = ["parser", "run"]

_EPILOG = """\
examples:
  xmpp-qos completion bash > ~/.local/share/bash-completion/completions/xmpp-qos
  xmpp-qos completion zsh > ~/.zfunc/_xmpp-qos

Shells that are started after that complete commands and options. zsh needs ~/.zfunc in
its fpath.
"""


def parser(prog: str) -> Parser:
    """See qos.cli.entry.Command."""
    parser = Parser(
        prog=prog,
        description="Print a script that completes words of xmpp-qos in a shell.",
        epilog=_EPILOG,
    )
    parser.add_argument("shell", choices=("bash", "zsh"), metavar="bash|zsh")
    return parser


async def run(arguments: argparse.Namespace) -> int:
    """See qos.cli.entry.Command."""
    try:
        import shtab
    except ImportError:
        raise UsageError(f"there is no shtab: {how_to_install('completion')}") from None
    whole = _whole_parser()
    for action in _actions(whole):
        if action.type is Path:
            setattr(action, "complete", shtab.FILE)  # noqa: B010 - for shtab alone
    await print_text(shtab.complete(whole, arguments.shell) + "\n")
    return Status.DONE


def _whole_parser() -> argparse.ArgumentParser:
    """One parser with the parsers of all commands below it."""
    # The entry imports this module when it is run.
    from qos.cli.entry import COMMANDS, command_named

    whole = Parser(prog="xmpp-qos")
    commands = whole.add_subparsers(dest="command")
    for name, description in COMMANDS.items():
        commands.add_parser(name, help=description, add_help=False)
        commands.choices[name] = command_named(name).parser(f"xmpp-qos {name}")
    return whole


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of those below it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _actions(below)
