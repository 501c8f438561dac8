"""Folders as Spark names them and as deltalake does.

Spark takes a path, a `file:` URI or a URI of an object store (`s3a://…`); deltalake
takes a path or a URI (`s3://…`) and its own options. Knows nothing of tables.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["delta_uri", "local_path", "spark_folder", "storage_options"]

#: Hadoop's option of S3 and the one that deltalake has for it.
_S3_OPTIONS: Final = {
    "fs.s3a.access.key": "AWS_ACCESS_KEY_ID",
    "fs.s3a.secret.key": "AWS_SECRET_ACCESS_KEY",
    "fs.s3a.session.token": "AWS_SESSION_TOKEN",
    "fs.s3a.endpoint": "AWS_ENDPOINT_URL",
    "fs.s3a.endpoint.region": "AWS_REGION",
}


def local_path(folder: str) -> Path | None:
    """The path of a folder on this machine; None: it is elsewhere."""
    if folder.startswith("file:"):
        # Hadoop decodes no percent signs here, so neither does this.
        return Path(re.sub("^file:(//[^/]*)?", "", folder))
    return None if "://" in folder else Path(folder)


def delta_uri(folder: str) -> str:
    """A folder as deltalake names it."""
    path = local_path(folder)
    if path is not None:
        return str(path.absolute())
    return re.sub("^s3[an]://", "s3://", folder)


def spark_folder(uri: str) -> str:
    """A folder as Spark names it, by the URI that deltalake has for it."""
    if uri.startswith("file:"):
        return url2pathname(urlsplit(uri).path).rstrip("/")
    return re.sub("^s3://", "s3a://", uri).rstrip("/")


def storage_options(spark: SparkSession, folder: str) -> dict[str, str] | None:
    """What deltalake needs to reach a folder, as far as Hadoop's options say it.

    The rest it takes from the environment (`AWS_…`, `AZURE_…`, `GOOGLE_…`).
    """
    if not delta_uri(folder).startswith("s3://"):
        return None
    hadoop = cast(Any, spark.sparkContext)._jsc.hadoopConfiguration()
    given = {ours: hadoop.get(name) for name, ours in _S3_OPTIONS.items()}
    options = {name: str(value) for name, value in given.items() if value}
    if options.get("AWS_ENDPOINT_URL", "").startswith("http:"):
        options["AWS_ALLOW_HTTP"] = "true"
    return options
