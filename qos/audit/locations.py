"""The names of folders for Spark, for deltalake, for Python and for people.

Within the audit each folder is a whole URL, `file:///…` on this machine: Spark looks for
a path without a scheme in the default file system of Hadoop (`fs.defaultFS`), which may be
that of a cluster. deltalake takes a path or a URI (`s3://…`) and its own options. This
module knows nothing of tables.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit
from urllib.request import url2pathname

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "delta_uri",
    "for_people",
    "local_path",
    "spark_folder",
    "storage_options",
    "whole_url",
    "without_links",
]

#: Hadoop's options of S3, and deltalake's names for them.
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
        # Hadoop does not decode percent signs here, so we do not either.
        return Path(re.sub("^file:(//[^/]*)?", "", folder))
    return None if "://" in folder else Path(folder)


def whole_url(folder: str) -> str:
    """The URL of a folder, which means the same to everybody.

    Its path is not quoted: Hadoop does not decode percent signs.
    """
    path = local_path(folder)
    return folder if path is None else f"file://{path.absolute()}"


def for_people(folder: str) -> str:
    """The name of a folder for people: a path if it is on this machine."""
    path = local_path(folder)
    return folder if path is None else str(path)


def without_links(folder: str) -> str:
    """The same folder, by the name to which links in its name lead now."""
    path = local_path(folder)
    return folder if path is None else f"file://{os.path.realpath(path)}"


def delta_uri(folder: str) -> str:
    """The name of a folder for deltalake."""
    path = local_path(folder)
    if path is not None:
        return str(path.absolute())
    return re.sub("^s3[an]://", "s3://", folder)


def spark_folder(uri: str) -> str:
    """The name of a folder for Spark, from deltalake's URI."""
    if uri.startswith("file:"):
        uri = url2pathname(urlsplit(uri).path)
    return whole_url(re.sub("^s3://", "s3a://", uri)).rstrip("/")


def storage_options(spark: SparkSession, folder: str) -> dict[str, str] | None:
    """The options with which deltalake reaches a folder, taken from Hadoop's options.

    deltalake takes other options from the environment (`AWS_…`, `AZURE_…`, `GOOGLE_…`).
    """
    if not delta_uri(folder).startswith("s3://"):
        return None
    hadoop = cast(Any, spark.sparkContext)._jsc.hadoopConfiguration()
    values = {ours: hadoop.get(name) for name, ours in _S3_OPTIONS.items()}
    options = {name: str(value) for name, value in values.items() if value}
    if options.get("AWS_ENDPOINT_URL", "").startswith("http:"):
        options["AWS_ALLOW_HTTP"] = "true"
    return options
