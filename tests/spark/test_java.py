"""The second Java can use at once the classes that the first one had to find.

Without output.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qos.spark.java import java_options

_OF = ("java 17", "spark 4")
_UNFINISHED = b"\0\0\0\0"
_WHOLE = b"\xa8\xab\x0b\xf0"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of a user who has given Java no options."""
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "xmpp-qos"


def file_of(options: str, option: str) -> Path:
    (word,) = [word for word in options.split() if word.startswith(f"-XX:{option}=")]
    assert "-Xlog:disable" in options
    return Path(word.partition("=")[2])


def test_the_first_java_writes_a_file_and_the_next_one_reads_it(cache: Path) -> None:
    """An unfinished file is not read, and is written again some time later."""
    file = file_of(java_options(*_OF, short=False), "ArchiveClassesAtExit")
    assert file.parent == cache
    file.write_bytes(_UNFINISHED)
    assert ".jsa" not in java_options(*_OF, short=False)
    os.utime(file, (0, 0))
    assert file_of(java_options(*_OF, short=False), "ArchiveClassesAtExit") == file
    file.write_bytes(_WHOLE)
    assert file_of(java_options(*_OF, short=False), "SharedArchiveFile") == file
    other = java_options("java 21", "spark 4", short=False)
    assert file_of(other, "ArchiveClassesAtExit") != file


def test_files_that_nobody_has_used_for_a_month_are_removed(cache: Path) -> None:
    """They are large; a process that has one open keeps it."""
    file = file_of(java_options(*_OF, short=False), "ArchiveClassesAtExit")
    file.write_bytes(_WHOLE)
    os.utime(file, (0, 0))
    foreign = cache / "notes"
    foreign.touch()
    os.utime(foreign, (0, 0))
    java_options(*_OF, short=False)
    java_options("java 21", "spark 4", short=False)
    assert file.exists()
    os.utime(file, (0, 0))
    java_options("java 21", "spark 4", short=False)
    assert [*cache.iterdir()] == [foreign]


@pytest.mark.parametrize("short", [False, True])
def test_without_a_place_for_it_java_starts_as_it_always_did(
    short: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a home, with a name that Spark would split, or with a user's own file."""
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    (tmp_path / "file").touch()
    for cache in (tmp_path / "file", tmp_path / "a b"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        options = java_options(*_OF, short=short)
        assert "Archive" not in options
        assert ("-XX:TieredStopAtLevel=1" in options) == short
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Da=b -XX:SharedArchiveFile=own.jsa")
    assert "Archive" not in java_options(*_OF, short=short)


@pytest.mark.spark
@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("of_user", ["", "-XX:+UseG1GC"])
def test_java_has_one_collector_and_that_of_the_user_if_there_is_one(
    of_user: str, short: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told of two, Java ends: "Multiple garbage collectors selected"."""
    # No folder can be made there: the options are none of an archive.
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", of_user)
    options = java_options(*_OF, short=short).split()
    done = subprocess.run(
        (shutil.which("java") or "", *options, "-XX:+PrintFlagsFinal", "-version"),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    names = re.findall(r"Use(G1|Serial|Parallel)GC +[:=]+ true", done.stdout)
    assert names == ["G1" if of_user else "Serial" if short else "Parallel"]


_CHILD = """
from pathlib import Path
from qos.spark.session import spark_session

with spark_session("child", master="local[1]", quiet=True, short=True) as spark:
    number = spark._jvm.java.lang.ProcessHandle.current().pid()
    print(".jsa" in Path(f"/proc/{number}/maps").read_text().replace("classes.jsa", ""))
"""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(180)
def test_java_does_so(tmp_path: Path) -> None:
    """Without any output on stdout or stderr."""
    found = []
    for _ in range(2):
        environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
        del environment["JAVA_TOOL_OPTIONS"]
        done = subprocess.run(
            (sys.executable, "-P", "-c", _CHILD),
            env=environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=True,
        )
        assert done.stderr == ""
        found.append(done.stdout)
        # It writes the file when its Python is gone.
        files: list[bytes] = []
        while not files or not any(files[0]):
            time.sleep(0.1)
            files = [
                path.read_bytes()[:4] for path in tmp_path.glob("xmpp-qos/spark-*")
            ]
    assert found == ["False\n", "True\n"]
