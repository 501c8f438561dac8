"""The parts of matplotlib that draw charts into files.

They are imported whichever backend the environment names: a file needs none. And they are
imported whatever is in the user's file of settings: without it, the charts look as they
were made.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Final

__all__ = [
    "AutoDateLocator",
    "Axes",
    "ConciseDateFormatter",
    "Figure",
    "MaxNLocator",
    "StrMethodFormatter",
    "date2num",
    "style",
]

log = logging.getLogger(__name__)

#: The variable in which a notebook names a backend, also for its commands, which may
#: have none of this name. matplotlib cannot be imported then.
_BACKEND: Final = "MPLBACKEND"

#: The variable that names the file of settings; one in the current folder comes first.
_SETTINGS: Final = "MATPLOTLIBRC"


def _import() -> None:
    """Import matplotlib, without the user's settings if they cannot be read."""
    try:
        importlib.import_module("matplotlib")
    except (UnicodeError, OSError) as error:
        log.warning("the settings of matplotlib are set aside: %s", error)
        for name in [name for name in sys.modules if name.startswith("matplotlib.")]:
            del sys.modules[name]
        settings = os.environ.get(_SETTINGS)
        os.environ[_SETTINGS] = os.devnull
        try:
            with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):
                importlib.import_module("matplotlib")
        finally:
            del os.environ[_SETTINGS]
            if settings is not None:
                os.environ[_SETTINGS] = settings


@contextlib.contextmanager
def _backend_afterwards() -> Iterator[None]:
    """Import matplotlib without the backend of the environment, and choose it then."""
    name = os.environ.pop(_BACKEND, None)
    try:
        _import()
        yield
    finally:
        if name is not None:
            os.environ[_BACKEND] = name
    if name:
        import matplotlib

        try:
            matplotlib.rcParams["backend"] = name
        except ValueError:
            log.warning(
                "%s=%s: set aside; matplotlib has no such backend", _BACKEND, name
            )


with _backend_afterwards():
    from matplotlib import style
    from matplotlib.axes import Axes
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter
