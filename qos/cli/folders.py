"""The folders of this program in the home of its user."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["NO_HOME", "xdg_folder"]

#: Begins an error that says what to give instead of a folder in the home.
NO_HOME = "there is no home folder (HOME is not set, and the user has none)"


def xdg_folder(variable: str, usual: str) -> Path | None:
    """Our folder by the XDG Base Directory Specification; None: there is no home.

    Args:
        variable: names the folder of all programs. A relative path is ignored.
        usual: that folder, below the home, if there is no such variable.
    """
    folder = Path(os.environ.get(variable, ""))
    if folder.is_absolute():
        return folder / "xmpp-qos"
    try:
        return Path.home() / usual / "xmpp-qos"
    except RuntimeError:  # neither HOME nor a line in /etc/passwd, as in a container
        return None
