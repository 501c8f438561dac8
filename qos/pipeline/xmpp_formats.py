"""See `qos.spark.formats`."""

import warnings

from qos.spark.formats import register

__all__ = ["register"]

warnings.warn(
    "qos.pipeline.xmpp_formats is qos.spark.formats now",
    DeprecationWarning,
    stacklevel=2,
)
