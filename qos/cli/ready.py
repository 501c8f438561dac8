"""Report that a command is ready: a line for people, and a message to systemd.

A unit with `Type=notify` counts as started when its program says so (sd_notify(3)), and
what comes after it, in a script or in another unit, finds it ready.
"""

import os
import socket
from contextlib import suppress

from qos.cli.output import note

#: The environment variable in which systemd says where it listens.
NOTIFY_VARIABLE = "NOTIFY_SOCKET"


def report_ready(jid: str, *, quiet: bool = False) -> None:
    """Say on stderr, and to systemd if it asks for it, that the session has begun.

    Args:
        jid: the full JID of the session.
        quiet: whether to leave out the line on stderr.
    """
    if not quiet:
        note(f"ready {jid}", name="")
    tell_systemd()


def tell_systemd() -> None:
    """Say to systemd, if it asks for it, that the program does its work."""
    address = os.environ.get(NOTIFY_VARIABLE, "")
    if not address:
        return
    if address.startswith("@"):  # a name in Linux's abstract namespace
        address = "\0" + address[1:]
    # If systemd does not hear it, it ends the service and says so in its log.
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.sendto(b"READY=1", address)
