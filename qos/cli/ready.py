"""Report that a command is ready: a line for people, and a message to systemd.

A unit with `Type=notify` counts as started when its program says so (sd_notify(3)), and
what comes after it, in a script or in another unit, finds it ready.
"""

import os
import socket
import threading

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
    try:
        _send_ready(address, socket.MSG_DONTWAIT)
    except BlockingIOError:
        # systemd is busy: only a thread waits for it.
        threading.Thread(
            target=_send_ready, args=(address, 0), name="qos.cli.ready", daemon=True
        ).start()


def _send_ready(address: str, flags: int) -> None:
    """Send it.

    Raises:
        BlockingIOError: the socket of systemd is full, and the flags forbid to wait.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        try:
            notify.sendto(b"READY=1", flags, address)
        except BlockingIOError:
            raise
        except OSError:
            return  # systemd ends the service, and says so in its log
