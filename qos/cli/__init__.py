"""The command `xmpp-qos`: one module for each subcommand, and `main`."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (None: those of the process).

    Call it in the main thread, outside an event loop: it runs a loop of its own, and
    handles SIGINT and SIGTERM.

    Returns:
        The exit status, see `qos.cli.status.Status`.
    """
    try:
        # Imported here, so that Ctrl-C during the imports shows no traceback.
        from qos.cli.entry import run

        return run(argv)
    except KeyboardInterrupt:
        return 130
