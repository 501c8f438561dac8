"""The folders of this program in the home of its user."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["xdg_folder"]


def xdg_folder(variable: str, usual: str) -> Path:
    """Our folder by the XDG Base Directory Specification.

    Args:
        variable: names the folder of all programs. A relative path is ignored.
        usual: that folder, below the home, if there is no such variable.
    """
    folder = Path(os.environ.get(variable, ""))
    return (folder if folder.is_absolute() else Path.home() / usual) / "xmpp-qos"
