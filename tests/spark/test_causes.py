"""The cause of a failure of Spark, from the texts of its errors as Spark gave them."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from qos.audit.delta import errors_name
from qos.cli.spark_run import SparkRun, disk_failure
from qos.cli.status import CommandError, Status
from qos.spark.causes import Lack, cause_of
from qos.testing.processes import Child

_TASK = (
    "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent "
    "failure: Lost task 0.0 in stage 0.0 (TID 0) (localhost executor driver): "
)

_WRITING = "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while …"

_WORKER = """\
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown \
from the Python worker: Traceback (most recent call last):
  File "pyspark.zip/pyspark/serializers.py", line 483, in loads
    return cloudpickle.loads(obj, encoding=encoding)
ModuleNotFoundError: No module named 'qos'
\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:600)
"""

_NO_EXEC = (
    "java.lang.UnsatisfiedLinkError: /tmp/libzstd-jni-1.5.7-71.so: "
    "/tmp/libzstd-jni-1.5.7-71.so: failed to map segment from shared object\n"
    "no zstd-jni-1.5.7-7 in java.library.path: /usr/lib/jni"
)

#: Of deltalake, by an OSError without a number and a file.
_RUST = (
    "Generic LocalFileSystem error\n          \x1b[31m↳\x1b[0m Unable to copy data to "
    "file\n           \x1b[31m↳\x1b[0m {}\n"
)

#: Of deltalake as well, by an error of its own kind.
_KERNEL = (
    "Kernel error: Arrow error: External: Generic LocalFileSystem error: Unable to copy "
    "data to file: {}"
)

_CATALOG = (
    "org.apache.spark.SparkException: [CANNOT_LOAD_CATALOG.PLUGIN_CLASS_NOT_FOUND] "
    "Cannot load catalog 'spark_catalog' with the plugin class "
    "'org.apache.spark.sql.delta.catalog.DeltaCatalog': the class is not found."
)


@pytest.mark.parametrize(
    ("texts", "lack", "words"),
    [
        (
            [_WRITING, "java.io.IOException: No space left on device"],
            Lack.ROOM,
            ["a disk is full: make room", "SPARK_LOCAL_DIRS"],
        ),
        (
            [
                f"{_TASK}ExecutorLostFailure (executor 1 exited caused by one of the "
                "running tasks) Reason: Remote RPC client disassociated."
            ],
            Lack.SETUP,
            ["an executor was lost", "start this again", "spark.executor.memory"],
        ),
        (
            [_WRITING, _NO_EXEC],
            Lack.SETUP,
            ["executed in /tmp (noexec)", "JAVA_TOOL_OPTIONS=-Djava.io.tmpdir=DIR"],
        ),
        (
            [_TASK, _WORKER],
            Lack.SETUP,
            ["/usr/bin/python9, has no module qos", "unset PYSPARK_PYTHON"],
        ),
        (
            [
                f'{_TASK}java.io.IOException: Cannot run program "/nope/python": '
                "error=2, No such file or directory",
                "java.io.IOException: error=2, No such file or directory",
            ],
            Lack.SETUP,
            ["cannot start /nope/python (2, No such file", "unset PYSPARK_PYTHON"],
        ),
        (
            [
                _CATALOG,
                "java.lang.ClassNotFoundException: "
                "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            ],
            Lack.SETUP,
            [
                "no jar with org.apache.spark.sql.delta.catalog.DeltaCatalog",
                "spark.sql.catalog.spark_catalog",
                "spark-defaults.conf",
            ],
        ),
        (
            ["", 'Exception in thread "main" basedir must be absolute: ?/.ivy2/local'],
            Lack.SETUP,
            ["has no line in /etc/passwd", "add a line"],
        ),
        (
            ["x", "Caused by: LoginException: invalid null input: name\n\tat a.b(C:1)"],
            Lack.SETUP,
            ["has no line in /etc/passwd"],
        ),
        (
            [_TASK, "java.lang.OutOfMemoryError: Java heap space"],
            Lack.SETUP,
            ["spark.driver.memory"],
        ),
        (
            ['o7.load: Class X: No FileSystem for scheme "s3a"'],
            Lack.SETUP,
            ["folders of s3a", "spark.jars.packages"],
        ),
        (
            ["TypeError: 'JavaPackage' object is not callable"],
            Lack.SETUP,
            ["unset SPARK_HOME"],
        ),
    ],
)
def test_the_cause_that_spark_gives_is_one_sentence_with_what_to_do(
    texts: list[str], lack: Lack, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was *An error occurred while calling o198.collectToPython*."""
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python9")
    cause = cause_of(texts)
    assert cause.lack == lack
    assert "\n" not in cause.text
    for word in words:
        assert word in cause.text


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (
            ["An error occurred while calling o1.x", "java.io.EOFException: 7"],
            "java.io",
        ),
        (
            ["Traceback (most recent call last):\nx\nKeyError: 'a'\n\tat b\n"],
            "KeyError",
        ),
        (["a warning\nException in x\n\tat b\nCaused by: c\n\t... 3 more"], "c"),
        (["[PATH_NOT_FOUND] Path does not exist"], "[PATH_NOT_FOUND]"),
        (["", " \n"], "no reason given"),
        ([_RUST.format("Permission denied (os error 13)")], "Permission denied"),
        ([_KERNEL.format("Permission denied (os error 13)")], "Permission denied"),
    ],
)
def test_of_an_unknown_cause_the_innermost_error_is_one_line(
    texts: list[str], line: str
) -> None:
    """Java's outermost one says only that there is an inner one."""
    cause = cause_of(texts)
    assert cause.lack == Lack.UNKNOWN
    assert cause.text.startswith(line)
    assert cause.text.isprintable()


_FULL = "No space left on device (os error 28)"

_ROOM = (
    "a disk is full: make room in the folder of the results and in Spark's folder of "
    "temporary files (SPARK_LOCAL_DIRS, otherwise /tmp)"
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(_RUST.format(_FULL)), f"o: {_ROOM}"),
        (OSError(28, "No space left on device"), f"o: {_ROOM}"),
        (OSError(28, "No space left on device", "o/a"), f"o/a: {_ROOM}"),
        (OSError(122, "Disk quota exceeded"), f"o: {_ROOM}"),
        (OSError(_RUST.format("Is a directory (os error 21)")), "o: Is a directory"),
        (OSError(13, "Permission denied", "o/a"), "o/a: Permission denied"),
        (OSError("no more"), "o: no more"),
        (DeltaError(_KERNEL.format(_FULL)), f"o: {_ROOM}"),
        (
            DeltaError(_KERNEL.format("Is a directory (os error 21)")),
            "o: Is a directory",
        ),
        (DeltaError("Delta transaction failed"), "o: Delta transaction failed"),
    ],
)
def test_an_error_of_a_disk_outside_of_spark_is_one_sentence(
    error: OSError | DeltaError, said: str
) -> None:
    """That of deltalake has several lines, and the colours of a terminal."""
    failure = disk_failure(error, "o")
    assert str(failure) == said
    assert failure.status == Status.OUTPUT


def test_a_full_disk_is_no_wrong_usage_in_deltalake_either() -> None:
    """It was one: the audit would never go on by other words."""
    with (
        pytest.raises(OSError, match="No space left") as raised,
        errors_name("o/refusals"),
    ):
        raise DeltaError(_KERNEL.format(_FULL))
    failure = disk_failure(raised.value, "o")
    assert (str(failure), failure.status) == (f"o/refusals: {_ROOM}", Status.OUTPUT)


class _Commits(SparkRun[None]):
    """Commits to a table outside of Spark."""

    def _do(self, spark: SparkSession) -> None:
        raise DeltaError(_KERNEL.format(_FULL))


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
async def test_an_error_of_deltalake_ends_a_command_with_one_sentence(
    spark: SparkSession,
) -> None:
    """It was called a mistake of ours, with the status for that."""
    with pytest.raises(CommandError) as raised:
        await _Commits(master=None, out="o").run()
    assert raised.value.status == Status.OUTPUT
    assert str(raised.value) == f"o: {_ROOM}"


class _Asks(SparkRun[None]):
    """Has a Python worker do something."""

    def _do(self, spark: SparkSession) -> None:
        spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
async def test_a_python_that_spark_cannot_start_ends_a_command_with_what_to_do(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is that of wrong usage, and not of a mistake of ours."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nope/python")
    with pytest.raises(CommandError, match="cannot start /nope/python") as raised:
        await _Asks(master=None, out="x").run()
    assert raised.value.status == Status.USAGE
    assert "\n" not in str(raised.value)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.xdist_group("spark-processes")
@pytest.mark.timeout(900)
def test_an_executor_that_is_killed_ends_a_command_with_what_to_do(
    tmp_path: Path, spark_as_it_comes: dict[str, str]
) -> None:
    """Spark says it in fifty lines, between places in its code."""
    spark = importlib.util.find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    # An executor has its folder in that of Spark.
    home = tmp_path / "spark"
    home.mkdir()
    for part in Path(spark.origin).parent.iterdir():
        (home / part.name).symlink_to(part)
    options = "-Dspark.task.maxFailures=1 -Dspark.executor.memory=512m"
    done = subprocess.run(
        (
            *Child.mortal(),
            sys.executable,
            Path(__file__).parent / "lost_executor_child.py",
        ),
        env={
            **spark_as_it_comes,
            "JAVA_TOOL_OPTIONS": f"{spark_as_it_comes['JAVA_TOOL_OPTIONS']} {options}",
            "SPARK_HOME": str(home),
        },
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.stdout == (
        f"{int(Status.USAGE)} Spark has failed while starting Spark: an executor was lost, "
        "and with it what it had computed: start this again; if that comes again, give it "
        "more memory by spark.executor.memory, and look at its log\n"
    ), done.stderr
