"""See `qos.spark.session`."""

import warnings

from qos.spark.session import NoSpark, check_spark, spark_session

__all__ = ["NoSpark", "check_spark", "spark_session"]

warnings.warn(
    "qos.pipeline.session is qos.spark.session now", DeprecationWarning, stacklevel=2
)
