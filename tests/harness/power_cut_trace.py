"""The system calls of a program on the files in a folder, recorded by strace.

So the record covers any store, even SQLite's C code, and the recorded program knows
nothing of it. A check shows that nothing is missing: the files that follow from the
record must equal the files that are there. This module knows system calls, and no
store.

Linux only, and strace must be installed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from power_cut_disk import (
    ROOT,
    Ack,
    Entered,
    Removed,
    Renamed,
    Resized,
    Sync,
    Trace,
    Written,
)

__all__ = ["RecordError", "Recorder"]

#: The time limit of a life; it takes a second or two.
_LIFE_S_MAX = 60

#: In memory, and shared by processes: nothing of it survives a power cut.
_SHARED = "-shm"

_CALL = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+)(?: resumed>|\()(.*)", re.DOTALL)
_DONE = re.compile(r"(.*)\)\s+= (-?\d+|\?)", re.DOTALL)
_UNFINISHED = " <unfinished ...>"

#: The descriptor of a file that may have been opened, and was not used.
_NO_DESCRIPTOR = 2**31


class RecordError(RuntimeError):
    """The actions of the program cannot be recorded, or cannot be read."""


@dataclass(slots=True)
class _Opened:
    """A descriptor: its file or folder, and the place of the next write."""

    node: int
    place: int = 0


class Recorder:
    """Records lives of programs that change the files in one folder.

    Attributes:
        trace: of all lives so far; unsynced changes of one life may be lost after the
            next.
    """

    def __init__(self, folder: Path, acks: Path) -> None:
        """Take an empty folder, and a file elsewhere for the statements to the world."""
        self.trace = Trace()
        self._folder = folder.resolve()
        self._acks = acks.resolve()
        self._nodes = 1

    def run(self, command: Sequence[str | Path], *, dies_in_sync: int = 0) -> None:
        """Run a program to its end.

        Args:
            command: the program.
            dies_in_sync: it is killed in the n-th sync of one of its threads; 0: it is
                not killed.

        Raises:
            RecordError: it failed, or made a call that is not known here.
        """
        strace = shutil.which("strace")
        if strace is None:
            raise RecordError("strace is not installed (Debian package: strace)")
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "strace")
            kill = f"inject=fsync,fdatasync:signal=KILL:when={dies_in_sync}"
            done = subprocess.run(
                [
                    *("setpriv", "--pdeathsig", "KILL"),
                    *(strace, "-f", "-qq", "-xx", "-s", "16777216"),
                    *("-e", "trace=?" + ",?".join(_CALLS)),
                    # Not both: strace 6.1 kills nothing then.
                    *(("-e", kill) if dies_in_sync else ("--seccomp-bpf",)),
                    *("-o", log, "--", *command),
                ],
                capture_output=True,
                text=True,
                check=False,
                timeout=_LIFE_S_MAX,
            )
            died = done.returncode == -signal.SIGKILL
            if done.returncode and not (died and dies_in_sync):
                raise RecordError(f"the program failed: {done.stderr.strip()}")
            with log.open(encoding="ascii") as lines:
                _Life(self._folder, self._acks, self).read(lines)
        wrong = self.wrong()
        if wrong:
            raise RecordError(f"the record is not what happened to {wrong[0]}")

    def new_node(self) -> int:
        """A number for a new file or folder."""
        self._nodes += 1
        return self._nodes

    def wrong(self) -> list[str]:
        """The paths whose recorded state differs from the real one."""
        said = dict(self.trace.tree.contents())
        there = {
            str(path.relative_to(self._folder)): path.read_bytes()
            if path.is_file()
            else None
            for path in self._folder.rglob("*")
        }
        return sorted(
            path
            for path in said.keys() | there.keys()
            if said.get(path, ...) != there.get(path, ...)
            and not path.endswith(_SHARED)
        )


class _Life:
    """Reads strace's log of one process, with all its threads."""

    def __init__(self, folder: Path, acks: Path, recorder: Recorder) -> None:
        self._folder = folder
        self._acks = acks
        self._recorder = recorder
        self._trace = recorder.trace
        self._opened: dict[int, _Opened] = {}
        self._telling: set[int] = set()
        # For each thread, its present call and the time it began; also calls whose end
        # was not reported, since the process died.
        self._begun: dict[str, tuple[int, str, str]] = {}
        self._unknown: list[tuple[int, str, str]] = []
        self._at = self._trace.end
        self._started = 0

    def read(self, lines: Iterable[str]) -> None:
        """Read all lines of its log."""
        for line in lines:
            self._at += 1
            self._line(line.rstrip("\n"))
        for started, name, text in (*self._unknown, *self._begun.values()):
            self._started = started
            self._perhaps(name, text)
        self._trace.end = self._at + 1

    def _line(self, line: str) -> None:
        call = _CALL.fullmatch(line)
        if call is None:
            return  # A signal, or the end of a thread.
        thread, name, rest = call.groups()
        if rest.endswith(_UNFINISHED):
            begun = rest.removesuffix(_UNFINISHED)
            self._begun[thread] = (self._at, name, begun)
            if name == "close":
                # Before its end is reported, another thread may get the number.
                self._forget(int(begun))
            return
        self._started, _, before = self._begun.pop(thread, (self._at, "", ""))
        if before and name == "close":
            return
        done = _DONE.match(before + rest)
        if done is None or done[2] == "?":
            self._unknown.append((self._started, name, before + rest))
        elif int(done[2]) >= 0:
            self._call(name, done[1], int(done[2]))

    def _call(self, name: str, arguments: str, result: int) -> None:
        _CALLS[name](self, [_plain(each) for each in arguments.split(", ")], result)

    def _perhaps(self, name: str, text: str) -> None:
        """A call that may have been made: it was, if the real state follows from it."""
        if _CALLS[name] in {_Life.sync, _Life.refuse, _Life.map, _Life.close}:
            return
        trace, before = self._trace, len(self._recorder.wrong())
        tree, count = trace.tree.copy(), len(trace.operations)
        arguments = text.partition(")")[0]
        size = re.search(r'", (\d+)', arguments)
        with contextlib.suppress(KeyError):
            self._call(name, arguments, int(size[1]) if size else _NO_DESCRIPTOR)
        if len(self._recorder.wrong()) >= before:
            trace.tree = tree
            del trace.operations[count:]

    # -- names -------------------------------------------------------------

    def _place(self, path: str | bytes) -> tuple[int, str] | None:
        """The folder of a path, and its name there; None: it is outside our folder."""
        whole = Path(os.path.normpath(_text(path)))
        if not whole.is_absolute() or not whole.is_relative_to(self._folder):
            return None
        *above, name = ("", *whole.relative_to(self._folder).parts)
        node = ROOT
        for part in above[1:]:
            node = self._trace.tree.folders[node][part]
        return node, name

    def _node(self, path: str | bytes) -> int | None:
        place = self._place(path)
        if place is None:
            return None
        folder, name = place
        return self._trace.tree.folders[folder].get(name) if name else ROOT

    def _at_path(self, at: str | bytes, path: str | bytes) -> str | bytes:
        """The path of a call with a folder argument, which must not matter."""
        if at != "AT_FDCWD" and not _text(path).startswith("/"):
            raise RecordError(f"a path below a descriptor: {_text(path)}")
        return path

    # -- calls -------------------------------------------------------------

    def open(self, arguments: list[str | bytes], result: int) -> None:
        at, path, flags, *_ = arguments
        path = self._at_path(at, path)
        self._forget(result)
        if _text(path) == str(self._acks):
            self._telling.add(result)
        place = self._place(path)
        if place is None:
            return
        node = self._node(path)
        if node is None:
            node = self._enter(*place, is_folder=False)
        elif "O_TRUNC" in _text(flags) and self._trace.tree.files[node]:
            self._make(Resized(node=node, **self._when(), size=0))
        self._opened[result] = _Opened(node)

    def close(self, arguments: list[str | bytes], _result: int) -> None:
        self._forget(_number(arguments[0]))

    def copy(self, arguments: list[str | bytes], _result: int) -> None:
        if _number(arguments[0]) in self._opened:
            raise RecordError("a descriptor was copied")

    def map(self, arguments: list[str | bytes], _result: int) -> None:
        _, _, protection, flags, descriptor, _ = map(_text, arguments)
        opened = self._opened.get(int(descriptor))
        if opened and "PROT_WRITE" in protection and "MAP_SHARED" in flags:
            names = [
                name
                for names in self._trace.tree.folders.values()
                for name, node in names.items()
                if node == opened.node
            ]
            if not names[0].endswith(_SHARED):
                raise RecordError(f"{names[0]} is written through memory")

    def write(self, arguments: list[str | bytes], result: int) -> None:
        descriptor, data = _number(arguments[0]), _bytes(arguments[1])[:result]
        if descriptor in self._telling:
            self._trace.acks.append(Ack(data.decode(), self._started))
        opened = self._opened.get(descriptor)
        if opened is not None:
            self._write(opened.node, opened.place, data)
            opened.place += result

    def write_at(self, arguments: list[str | bytes], result: int) -> None:
        descriptor, data, _, offset = arguments
        opened = self._opened.get(_number(descriptor))
        if opened is not None:
            self._write(opened.node, _number(offset), _bytes(data)[:result])

    def resize(self, arguments: list[str | bytes], _result: int) -> None:
        opened = self._opened.get(_number(arguments[0]))
        if opened is not None:
            size = _number(arguments[1])
            self._make(Resized(node=opened.node, **self._when(), size=size))

    def resize_path(self, arguments: list[str | bytes], _result: int) -> None:
        node = self._node(arguments[0])
        if node is not None:
            size = _number(arguments[1])
            self._make(Resized(node=node, **self._when(), size=size))

    def sync(self, arguments: list[str | bytes], _result: int) -> None:
        opened = self._opened.get(_number(arguments[0]))
        if opened is not None:
            self._trace.syncs.append(Sync(opened.node, **self._when()))

    def make_folder(self, arguments: list[str | bytes], _result: int) -> None:
        place = self._place(arguments[0])
        if place is not None:
            self._enter(*place, is_folder=True)

    def make_folder_at(self, arguments: list[str | bytes], result: int) -> None:
        self.make_folder([self._at_path(*arguments[:2])], result)

    def rename(self, arguments: list[str | bytes], _result: int) -> None:
        old, new = map(self._place, arguments[:2])
        if old is None and new is None:
            return
        if old is None or new is None or old[0] != new[0]:
            raise RecordError("a file went from one folder to another")
        child = self._trace.tree.folders[old[0]][old[1]]
        self._make(
            Renamed(node=old[0], **self._when(), old=old[1], new=new[1], child=child)
        )

    def rename_at(self, arguments: list[str | bytes], result: int) -> None:
        old, new = self._at_path(*arguments[:2]), self._at_path(*arguments[2:4])
        self.rename([old, new], result)

    def remove(self, arguments: list[str | bytes], _result: int) -> None:
        place = self._place(arguments[0])
        if place is not None:
            self._make(Removed(node=place[0], **self._when(), name=place[1]))

    def remove_at(self, arguments: list[str | bytes], result: int) -> None:
        self.remove([self._at_path(*arguments[:2])], result)

    def refuse(self, arguments: list[str | bytes], _result: int) -> None:
        """Refuse calls that none of our stores makes.

        Calls on other files are allowed.
        """
        for each in arguments:
            text = _text(each)
            ours = text.startswith(str(self._folder))
            if ours or (text.isdecimal() and int(text) in self._opened):
                raise RecordError("a system call that is not known here")

    # -- what follows ------------------------------------------------------

    def _when(self) -> dict[str, int]:
        return {"started": self._started, "ended": self._at}

    def _forget(self, descriptor: int) -> None:
        self._opened.pop(descriptor, None)
        self._telling.discard(descriptor)

    def _enter(self, folder: int, name: str, *, is_folder: bool) -> int:
        node = self._recorder.new_node()
        if is_folder:
            self._trace.tree.folders[node] = {}
        else:
            self._trace.tree.files[node] = bytearray()
        self._make(Entered(node=folder, **self._when(), name=name, child=node))
        return node

    def _write(self, node: int, offset: int, data: bytes) -> None:
        self._make(Written(node=node, **self._when(), offset=offset, data=data))

    def _make(self, operation: Entered | Renamed | Removed | Resized | Written) -> None:
        operation.apply(self._trace.tree)
        self._trace.operations.append(operation)


#: The calls that change files, and those that connect a number with a file.
_CALLS: dict[str, Callable[[_Life, list[str | bytes], int], None]] = {
    "openat": _Life.open,
    "close": _Life.close,
    "dup": _Life.copy,
    "dup2": _Life.copy,
    "dup3": _Life.copy,
    "mmap": _Life.map,
    "write": _Life.write,
    "pwrite64": _Life.write_at,
    "ftruncate": _Life.resize,
    "truncate": _Life.resize_path,
    "fsync": _Life.sync,
    "fdatasync": _Life.sync,
    "mkdir": _Life.make_folder,
    "mkdirat": _Life.make_folder_at,
    "rename": _Life.rename,
    "renameat": _Life.rename_at,
    "renameat2": _Life.rename_at,
    "unlink": _Life.remove,
    "rmdir": _Life.remove,
    "unlinkat": _Life.remove_at,
    **dict.fromkeys(
        (
            *("open", "creat", "writev", "pwritev", "pwritev2", "fallocate"),
            *("link", "linkat", "symlink", "symlinkat", "copy_file_range"),
            *("sendfile", "splice", "io_uring_enter"),
        ),
        _Life.refuse,
    ),
}


def _plain(argument: str) -> str | bytes:
    """An argument as strace prints it; a text becomes its bytes."""
    if not argument.startswith('"'):
        return argument
    if not argument.endswith('"'):
        raise RecordError("a text was too long to record")
    return bytes.fromhex(argument[1:-1].replace("\\x", ""))


def _text(argument: str | bytes) -> str:
    return argument if isinstance(argument, str) else argument.decode()


def _bytes(argument: str | bytes) -> bytes:
    assert isinstance(argument, bytes)
    return argument


def _number(argument: str | bytes) -> int:
    assert isinstance(argument, str)
    return int(argument)
