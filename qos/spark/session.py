"""A Spark session for an audit, or one clear line with the reason why none is possible.

Only this module knows how Spark is started: on this machine, bound to loopback, or on a
cluster. It imports pyspark only when a session is requested.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from qos.extras import how_to_install
from qos.spark.causes import Cause, Lack, cause_of, error_texts
from qos.spark.environment import (
    EXECUTOR_ENVIRONMENT,
    SAFE_PATH,
    java_environment,
    without_connect,
)
from qos.spark.java import java_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["JAVA_LEAST", "NoSpark", "check_python", "check_spark", "spark_session"]

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"

#: The oldest version of Java for Spark 4.
JAVA_LEAST: Final = 17

_EXTRA = ("pyspark", "py4j", "pandas", "pyarrow", "matplotlib")

_JAVA_ANSWERS_S = 30.0

#: All modules that a worker of Spark needs, found without importing them.
_IMPORTS = (
    "import qos, importlib.metadata as m; m.version('slixmpp'); m.version('pyspark')"
)
_PYTHON_ANSWERS_S = 60.0

#: spark-submit sets it for Python: then there is a JVM already.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"

#: For all sessions: results must not depend on the place of the computation.
_ALWAYS = {
    **EXECUTOR_ENVIRONMENT,
    "spark.sql.session.timeZone": "UTC",
    # The other type is deprecated, and takes several times as long to write.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.ansi.enabled": "true",
    # Otherwise the frames of a union, each for a file of its own, would become one
    # file.
    "spark.sql.unionOutputPartitioning": "false",
    # Java compiles no method with more bytes than this, and a plan in such a method is
    # slow.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # The place in our code where a column was made tells a user nothing. To find it
    # out, for each of thousands of columns, takes as long as everything else before a
    # query runs.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}

#: For a session on this machine: nobody else can connect to it.
_LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}

#: Defaults of such a session, unless a spark-defaults.conf of the user changes them.
#: They must be known when Java starts.
_LOCAL_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    # An audit has more plans than the 100 for which Spark keeps the code by default:
    # the next look of a follower would compile all of it again.
    "spark.sql.codegen.cache.maxEntries": "1000",
}

#: Further defaults, set when Java runs.
_USUAL = {
    "spark.sql.parquet.compression.codec": "zstd",
    # More partitions would be more files and tasks than two or four cores can use.
    "spark.sql.shuffle.partitions": "32",
    # A journal has many small files, and a task for each few of them would be too many.
    "spark.sql.files.openCostInBytes": str(256 * 1024),
    # A Spark job that lists the files of a table takes longer than listing them here.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
}


class NoSpark(Exception):
    """Spark cannot be used here; the text names the missing part, in one line."""


def check_spark() -> str:
    """Check that the extra and Java are installed. Takes less than a second.

    Returns:
        Java's text about its version; "" if spark-submit has started Java already.

    Raises:
        NoSpark: one of them is missing.
    """
    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise NoSpark(
            f"this needs the extra `spark`, and there is no {' and no '.join(missing)}: "
            f"{how_to_install('spark')}"
        )
    return "" if _SUBMITTED in os.environ else _check_java()


def check_python(spark: SparkSession) -> None:
    """Check that the Python that Spark starts on this machine can import this library.

    Spark takes `python3` from the PATH, unless another one is set before its session is
    made. In an environment that is not activated, that is another Python.

    Raises:
        NoSpark: it cannot import it.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:  # Spark Connect: its Python is on another machine
        return
    # Like Spark's `PythonUtils.defaultPythonExec`, which Python cannot call.
    names = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
    settings = [jvm.java.lang.System.getenv(name) for name in names]
    python = next(filter(None, settings), "python3")
    if python == sys.executable:
        return
    try:
        finished = subprocess.run(  # noqa: S603 - what Spark starts as well
            (python, "-c", _IMPORTS),
            capture_output=True,
            text=True,
            env={**os.environ, **SAFE_PATH},
            timeout=_PYTHON_ANSWERS_S,
        )
        if finished.returncode == 0:
            return
        problem = (finished.stderr.strip().splitlines() or ["no reason given"])[-1]
    except (OSError, subprocess.SubprocessError) as error:
        problem = str(error)
    path = shutil.which(python) or python
    raise NoSpark(
        f"the Python that Spark starts, {path}, cannot import qos ({problem}): set "
        f"PYSPARK_PYTHON={sys.executable} before the Spark session is made"
    )


@contextlib.contextmanager
def spark_session(
    name: str = "xmpp-qos",
    *,
    master: str | None = None,
    quiet: bool = False,
    short: bool = False,
) -> Iterator[SparkSession]:
    """A session, which is stopped at the end unless it existed before.

    Args:
        name: shown in Spark's own displays.
        master: as for Spark: `local[2]`, `spark://host:port`…; None: the master of
            spark-submit, or else all cores of this machine.
        quiet: keep Java's own output (its warnings at the start) out of our stderr.
        short: on this machine, for at most a minute: Java does not prepare for more.

    Raises:
        NoSpark: no session is possible.
    """
    java = check_spark()
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    # The active session is that of one thread; another thread may have one.
    ours = SparkContext._active_spark_context is None
    os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON") or sys.executable
    submitted = _SUBMITTED in os.environ
    if master is None and not submitted:
        master = "local[*]"
    local = master is not None and master.startswith("local")
    options = {**_ALWAYS, "spark.app.name": name}
    if master is not None:
        options["spark.master"] = master
    if local:
        options |= _local_options(java if ours else "", short=short)
        if not submitted:
            os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with without_connect():
        spark = _started(options, redirect=quiet and ours and not submitted)
        try:
            if ours:
                _set_up(spark, local=local)
            # A session that existed before has its own time zone.
            spark.conf.set("spark.sql.session.timeZone", "UTC")
            yield spark
        finally:
            if ours:
                # Java may have ended before us.
                with contextlib.suppress(Py4JError, OSError):
                    spark.stop()


def _local_options(java: str, *, short: bool) -> dict[str, str]:
    """The options of a session on this machine; the user's own defaults come first.

    Args:
        java: its text about its version; "": it runs already.
        short: see spark_session.
    """
    import pyspark

    defaults = dict(_LOCAL_DEFAULTS)
    if java:
        of = (java, pyspark.__version__, pyspark.__file__)
        defaults[_JAVA_OPTIONS] = java_options(*of, short=short)
    by_user = _user_defaults()
    own = {key: value for key, value in defaults.items() if key not in by_user}
    return {**_LOCAL, **own}


def _started(options: Mapping[str, str], *, redirect: bool) -> SparkSession:
    """A session with these options, which is made now unless there is one.

    Args:
        options: all options.
        redirect: keep Java's own output out of our stderr.

    Raises:
        NoSpark: it does not start.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    with java_environment(), _java_log(wanted=redirect) as java_log:
        try:
            if java_log is not None:
                _start_java(options, java_log)
            return SparkSession.builder.config(map=dict(options)).getOrCreate()
        except Exception as error:
            cause = _why(error, java_log)
            # Py4J has no common base class for errors during the start of a JVM.
            is_of_spark = isinstance(error, PySparkException | OSError) or type(
                error
            ).__module__.startswith("py4j")
            if cause.lack == Lack.UNKNOWN and not is_of_spark:
                raise
            raise NoSpark(f"Spark does not start: {cause.text}") from None


def _set_up(spark: SparkSession, *, local: bool) -> None:
    """Set up a session that was made here; `local`: it runs on this machine."""
    # Options of Java, and the locale of spark-submit, may have set another one: it would
    # write the digits in the names of files.
    locale = cast(Any, spark)._jvm.java.util.Locale
    locale.setDefault(locale.forLanguageTag("en-US"))
    spark.sparkContext.setLogLevel("ERROR")
    conf = spark.sparkContext.getConf()
    for key, value in _USUAL.items() if local else ():
        if not conf.contains(key):
            spark.conf.set(key, value)


def _user_defaults() -> frozenset[str]:
    """The keys in the user's spark-defaults.conf, which Spark itself reads."""
    folder = os.environ.get("SPARK_CONF_DIR")
    if not folder and (home := os.environ.get("SPARK_HOME")):
        folder = f"{home}/conf"
    if not folder:
        return frozenset()
    try:
        text = Path(folder, "spark-defaults.conf").read_text(errors="replace")
    except OSError:
        return frozenset()
    return frozenset(re.findall(r"^\s*(spark\.[^\s=:]+)", text, re.MULTILINE))


def _check_java() -> str:
    """Find Java, and return its text about its version."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    advice = f"install Java {JAVA_LEAST} (Debian: openjdk-17-jre-headless)"
    if java is None:
        place = f"in JAVA_HOME, {home}" if home else "here"
        raise NoSpark(f"Spark needs Java, and there is none {place}: {advice}")
    try:
        answer = subprocess.run(  # noqa: S603 - the user's own Java
            (java, "-version"),
            check=True,
            capture_output=True,
            text=True,
            timeout=_JAVA_ANSWERS_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoSpark(f"{java} does not run ({error}): {advice}") from None
    # `openjdk version "17.0.15" 2025-04-15`; before Java 9 it was "1.8.0_392".
    text = answer.stderr + answer.stdout
    match = re.search(r'version "(?:1\.)?([0-9]+)', text)
    version = int(match[1]) if match else 0
    if version < JAVA_LEAST:
        version_text = version or "of an unknown version"
        raise NoSpark(
            f"Spark needs Java {JAVA_LEAST}, and {java} is {version_text}: {advice}"
        )
    return f"{java}\n{text}"


@contextlib.contextmanager
def _java_log(*, wanted: bool) -> Iterator[Path | None]:
    """A file for Java's stderr. It is removed at the end, and Java goes on writing to it."""
    if not wanted:
        yield None
        return
    number, name = tempfile.mkstemp(prefix="xmpp-qos-spark-", suffix=".log")
    os.close(number)
    path = Path(name)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _start_java(options: Mapping[str, str], log: Path) -> None:
    """Start Java with this file as its stderr, unless there is one from before.

    Our own stderr is not touched: other threads write to it meanwhile.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf().setAll(list(options.items()))
    with log.open("ab") as stderr:
        streams = {"stderr": stderr}
        gateway = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]  # pyspark's lack
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _why(error: Exception, java_log: Path | None) -> Cause:
    """The cause for which Spark does not start."""
    log_text = java_log.read_text(errors="replace") if java_log else ""
    if not re.search("error|exception", log_text, re.IGNORECASE):
        log_text = ""  # only warnings
    return cause_of([*error_texts(error), log_text])
