"""The parts of matplotlib that draw charts into files.

They are imported whichever backend the environment names: a file needs none.
"""

from __future__ import annotations

import contextlib
import logging
import os
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


@contextlib.contextmanager
def _backend_afterwards() -> Iterator[None]:
    """Import matplotlib without the backend of the environment, and choose it then."""
    name = os.environ.pop(_BACKEND, None)
    try:
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
