"""Checks of passwords: two at a time, in fair turns of those who wait.

A check takes some 50 ms of a processor by design. So an address that tries many passwords
waits for its own, and an account for the tries at its own name; see
`qos.core.login_queue`. The same password of the same user is checked once for all who
wait for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
import sys
import threading
from base64 import b64decode, b64encode
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from qos.core.login_queue import Full, LoginQueue

__all__ = ["PasswordChecks", "TooBusy", "hashed", "is_hash", "is_right"]

#: The cost of scrypt (RFC 7914 §2): 16 MiB and some 50 ms for each login.
_N, _R, _P = 2**14, 8, 1
_MEMORY_MAX = 64 * 1024 * 1024
_KEY_BYTES = 32

#: The most passwords that are checked at a time.
_CHECKS_MAX = 2

#: Added to the nice value of the threads that check them, so that all else comes first.
_NICER = 10


def hashed(password: str) -> str:
    """The hash of a password, with a new salt."""
    salt = secrets.token_bytes(16)
    key = _key(password, salt, _N, _R, _P)
    coded = (b64encode(part).decode() for part in (salt, key))
    return ":".join(("scrypt", str(_N), str(_R), str(_P), *coded))


def is_hash(password_hash: str) -> bool:
    """Whether this is the hash of a password."""
    return _parts(password_hash) is not None


def is_right(password: str, password_hash: str) -> bool:
    """Whether a hash is that of this password. It takes a while."""
    parts = _parts(password_hash)
    assert parts is not None
    n, r, p, salt, key = parts
    return hmac.compare_digest(_key(password, salt, n, r, p), key)


def _key(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    return hashlib.scrypt(
        password.encode(),
        salt=salt,
        n=n,
        r=r,
        p=p,
        maxmem=_MEMORY_MAX,
        dklen=_KEY_BYTES,
    )


def _parts(password_hash: str) -> tuple[int, int, int, bytes, bytes] | None:
    try:
        kind, n, r, p, salt, key = password_hash.split(":")
        parts = (int(n), int(r), int(p), b64decode(salt), b64decode(key))
    except ValueError:
        return None
    return (
        parts if kind == "scrypt" and 128 * parts[0] * parts[1] < _MEMORY_MAX else None
    )


def _give_way() -> None:
    """Let this thread have the processor when nothing else wants it.

    Only Linux has priorities of threads.
    """
    if sys.platform == "linux":
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice + _NICER)


class TooBusy(Exception):
    """Too many passwords of this address wait to be checked."""

    def __init__(self) -> None:
        super().__init__("too many passwords of this address wait to be checked")


@dataclass(eq=False, slots=True)
class _Check:
    """One password of one user.

    Attributes:
        name: of the user.
        password: to be checked.
        password_hash: of the user.
        asking: those who wait for the result.
        addresses: in whose lanes it waits; (): it is running.
    """

    name: str
    password: str
    password_hash: str
    asking: set[asyncio.Future[bool]] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)


class PasswordChecks:
    """All checks of a service, whatever door they are for."""

    def __init__(self) -> None:
        self._queue: LoginQueue[_Check] = LoginQueue()
        self._checks: dict[tuple[str, str, str], _Check] = {}
        self._running: set[asyncio.Task[None]] = set()
        # Not the threads of asyncio: slow look-ups of names would keep these.
        self._threads = ThreadPoolExecutor(_CHECKS_MAX, "password", _give_way)

    async def is_right(
        self, name: str, password: str, password_hash: str, *, address: str
    ) -> bool:
        """Whether a password is right. Whoever stops waiting leaves the queue.

        Args:
            name: of the user, known or not.
            password: to be checked.
            password_hash: the hash.
            address: pays for it.

        Raises:
            TooBusy: the address has too many that wait.
        """
        key = name, password, password_hash
        check = self._checks.get(key)
        if check is None:
            check = self._checks[key] = _Check(name, password, password_hash)
        is_running = bool(check.asking) and not check.addresses
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        check.asking.add(answer)
        try:
            if not is_running and address not in check.addresses:
                self._enter(check, address)
            return await answer
        finally:
            check.asking.discard(answer)
            if not check.asking:
                self._forget(check)

    def _enter(self, check: _Check, address: str) -> None:
        try:
            displaced = self._queue.add(address, check.name, check)
        except Full:
            raise TooBusy from None
        check.addresses.add(address)
        if displaced is not None:
            displaced.addresses.discard(address)
            if not displaced.addresses:
                self._end(displaced, TooBusy())
        self._run()

    def _run(self) -> None:
        while self._queue and len(self._running) < _CHECKS_MAX:
            address, check = self._queue.take()
            check.addresses.discard(address)
            self._leave_lanes(check)
            task = asyncio.get_running_loop().create_task(self._check(check))
            self._running.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._run()

    async def _check(self, check: _Check) -> None:
        loop = asyncio.get_running_loop()
        right = False
        try:
            right = await loop.run_in_executor(
                self._threads, is_right, check.password, check.password_hash
            )
        finally:
            self._end(check, right)

    def _end(self, check: _Check, result: bool | TooBusy) -> None:
        self._forget(check)
        for answer in check.asking:
            if answer.done():
                continue
            if isinstance(result, TooBusy):
                answer.set_exception(result)
            else:
                answer.set_result(result)

    def _forget(self, check: _Check) -> None:
        self._leave_lanes(check)
        key = check.name, check.password, check.password_hash
        if self._checks.get(key) is check:
            del self._checks[key]

    def _leave_lanes(self, check: _Check) -> None:
        for address in check.addresses:
            self._queue.remove(address, check.name, check)
        check.addresses.clear()
