"""The dependency group with the libraries of other systems."""

from __future__ import annotations

__all__ = ["HOW_TO_INSTALL"]

#: `--group` needs pip 25.1.
HOW_TO_INSTALL = "pip install --group benchmarks in the folder of xmpp-qos"
