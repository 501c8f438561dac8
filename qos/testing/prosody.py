"""A real Prosody for tests, in a folder, on ports and with a process of its own.

Knows how to configure, start, stop and kill one server. Knows nothing of clients and
nothing of pytest: a script can use it too. Linux only, and prosody must be installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from qos.testing.ports import ADDRESS, free_ports

__all__ = ["MakeProsody", "Prosody", "ProsodyError", "mutual"]

DOMAIN = "localhost"

# Prosody answers within 0.1 s of its start; the rest is for a machine under load.
START_S_MAX = 20.0
STOP_S_MAX = 10.0

Roster = Mapping[str, str]


class ProsodyError(RuntimeError):
    """Prosody is not installed, did not start, or started without what was asked."""


class Prosody:
    """One Prosody on loopback, host `localhost`, a child process of ours.

    Use it as an async context manager, or call `start` and `stop`. All attributes are
    known, and the ports stay the same, from the first moment on.

    Args:
        folder: An empty folder that is this server's alone.
        accounts: Passwords by user name (the part before the @).
        rosters: For each user the subscription (`both`, `to`, `from`, `none`) by
            contact: a user name of this server or a bare JID. Nothing is mirrored:
            list both sides, for example with `mutual`.
        components: Secrets of XEP-0114 components by JID.
        nagle: Whether to leave Nagle's algorithm on, as Prosody ships.
        smacks: Whether to offer XEP-0198.
        tls: Whether to offer STARTTLS on `c2s_port` and direct TLS on `tls_port`, with
            a certificate that `ca_file` vouches for. Plain logins stay possible.
        stanza_bytes_max: The longest stanza taken from a client or component; None
            for Prosody's defaults (256 KiB and 512 KiB).
        extra: Lua to append to the configuration, such as
            `Component "muc.localhost" "muc"`.
    """

    address = ADDRESS
    domain = DOMAIN

    def __init__(
        self,
        folder: Path,
        *,
        accounts: Mapping[str, str],
        rosters: Mapping[str, Roster] | None = None,
        components: Mapping[str, str] | None = None,
        nagle: bool = False,
        smacks: bool = True,
        tls: bool = False,
        stanza_bytes_max: int | None = None,
        extra: str = "",
    ) -> None:
        self.folder = folder
        self.accounts = dict(accounts)
        self.rosters = {user: dict(roster) for user, roster in (rosters or {}).items()}
        self.components = dict(components or {})
        self.nagle = nagle
        self.smacks = smacks
        self.stanza_bytes_max = stanza_bytes_max
        self.extra = extra
        self.c2s_port, self.component_port, free_port = free_ports(3)
        self.tls_port = free_port if tls else None
        self.ca_file = folder / "localhost.crt" if tls else None
        self._log_file = folder / "prosody.log"
        self._console_file = folder / "console.log"
        self._process: asyncio.subprocess.Process | None = None

    @property
    def running(self) -> bool:
        """Whether there is a process, healthy or not."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """The process id; only while it is running."""
        assert self._process is not None
        assert self.running
        return self._process.pid

    @property
    def log(self) -> str:
        """What Prosody has written to its log and console, since the first start."""
        files = (self._console_file, self._log_file)
        return "".join(file.read_text() for file in files if file.exists())

    async def start(self) -> None:
        """Start, on the data of last time if there was one; returns when logins work.

        Raises:
            ProsodyError: With the end of the log, if that does not come about.
        """
        assert not self.running
        binary = shutil.which("prosody")
        if binary is None:
            raise ProsodyError("prosody is not installed (Debian package: prosody)")
        config_file = self.folder / "prosody.cfg.lua"
        if not config_file.exists():
            await self._make_certificate()
            self._write_files(config_file)
        log_seen = len(self.log)
        with self._console_file.open("ab") as console:
            self._process = await asyncio.create_subprocess_exec(
                # Dies with the test run, even when that is killed.
                *("setpriv", "--pdeathsig", "KILL"),
                *(binary, "--config", str(config_file), "-F"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        try:
            async with asyncio.timeout(START_S_MAX):
                await self._ready(log_seen)
        except TimeoutError:
            await self.kill()
            text = f"prosody was not ready within {START_S_MAX} s"
            raise ProsodyError(self._with_log_tail(text)) from None
        except BaseException:
            await self.kill()
            raise

    async def stop(self) -> None:
        """Shut down in order, which takes a second when clients are still there.

        They get `system-shutdown`, mostly: Prosody now and then closes a connection
        without writing what it had for it. No harm if it is not running.
        """
        await self._end(kill=False)

    async def kill(self) -> None:
        """End it by SIGKILL. No harm if it is not running."""
        await self._end(kill=True)

    async def restart(self) -> None:
        """Stop and start on the same ports and data; sessions are gone."""
        await self.stop()
        await self.start()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Its data go with the folder, and a client that is still there must not
        # hold up the end of the test.
        await self.kill()

    async def _end(self, *, kill: bool) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _ready(self, log_seen: int) -> None:
        """Wait for its ports and for stream features: a port alone proves nothing."""
        assert self._process is not None
        activated = f"Activated service 'c2s' on [{self.address}]:{self.c2s_port}"
        ready = False
        while not ready:
            if activated in self.log[log_seen:]:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    await self._read_features()
                    ready = True
            # It carries on without a port that is taken; somebody else has that port.
            if "Failed to open server port" in self.log[log_seen:]:
                raise ProsodyError(self._with_log_tail("prosody did not get its ports"))
            if self._process.returncode is not None:
                text = f"prosody ended with status {self._process.returncode}"
                raise ProsodyError(self._with_log_tail(text))
            await asyncio.sleep(0.005)

    async def _read_features(self) -> None:
        reader, writer = await asyncio.open_connection(self.address, self.c2s_port)
        try:
            writer.write(
                f"<stream:stream to='{self.domain}' version='1.0' xmlns='jabber:client'"
                " xmlns:stream='http://etherx.jabber.org/streams'>".encode()
            )
            await reader.readuntil(b"</stream:features>")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _with_log_tail(self, text: str) -> str:
        return "\n".join([f"{text}; the end of its log:", *self.log.splitlines()[-20:]])

    def _write_files(self, config_file: Path) -> None:
        config_file.write_text(self._config())
        host_folder = self.folder / "data" / _file_name(self.domain)
        for user, password in self.accounts.items():
            _save(host_folder / "accounts", user, {"password": password})
        for user, roster in self.rosters.items():
            items: dict[str, object] = {
                contact if "@" in contact else f"{contact}@{self.domain}": {
                    "subscription": subscription,
                    "groups": {},
                }
                for contact, subscription in roster.items()
            }
            _save(host_folder / "roster", user, items)

    async def _make_certificate(self) -> None:
        if self.ca_file is None:
            return
        command = (
            *("openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"),
            *("-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            # Python 3.13 and later refuse a certificate authority without it.
            *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
            *("-keyout", str(self.ca_file.with_suffix(".key"))),
            *("-out", str(self.ca_file)),
        )
        if shutil.which("openssl") is None:
            raise ProsodyError("openssl is not installed (Debian package: openssl)")
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, stderr = await process.communicate()
        if process.returncode != 0:
            raise ProsodyError(f"openssl made no certificate: {stderr.decode()}")

    def _config(self) -> str:
        modules = ["roster", "saslauth", "tls", "disco", "ping"]
        options: dict[str, object] = {
            # As root it would accept connections otherwise, but no login.
            "run_as_root": True,
            "data_path": str(self.folder / "data"),
            "pidfile": str(self.folder / "prosody.pid"),
            "certificates": str(self.folder),
            "log": {"info": str(self._log_file)},
            "interfaces": [self.address],
            "c2s_ports": [self.c2s_port],
            "c2s_direct_tls_ports": [],
            "component_ports": [self.component_port] if self.components else [],
            "component_interfaces": [self.address],
            "s2s_ports": [],
            "http_ports": [],
            "https_ports": [],
            "modules_enabled": [*modules, "smacks"] if self.smacks else modules,
            "modules_disabled": ["s2s"],
            "authentication": "internal_plain",
            "c2s_require_encryption": False,
            "allow_unencrypted_plain_auth": True,
        }
        if not self.nagle:
            options["network_settings"] = {"nagle": False}
        if self.stanza_bytes_max is not None:
            options["c2s_stanza_size_limit"] = self.stanza_bytes_max
            options["component_stanza_size_limit"] = self.stanza_bytes_max
        if self.ca_file is not None:
            options["c2s_direct_tls_ports"] = [self.tls_port]
            options["ssl"] = {
                "certificate": str(self.ca_file),
                "key": str(self.ca_file.with_suffix(".key")),
            }
        lines = [f"{name} = {_lua(value)}" for name, value in options.items()]
        lines.append(f"VirtualHost {_lua(self.domain)}")
        for jid, secret in self.components.items():
            lines.append(f"Component {_lua(jid)}\n  component_secret = {_lua(secret)}")
        return "\n".join([*lines, self.extra, ""])


#: The fixture `make_prosody`: takes the options of `Prosody`; returns a running server.
MakeProsody = Callable[..., Awaitable[Prosody]]


def mutual(*pairs: tuple[str, str]) -> dict[str, dict[str, str]]:
    """Rosters in which both of each pair have the other, with subscription `both`."""
    rosters: dict[str, dict[str, str]] = {}
    for one, other in pairs:
        rosters.setdefault(one, {})[other] = "both"
        rosters.setdefault(other, {})[one] = "both"
    return rosters


def _save(folder: Path, user: str, data: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{_file_name(user)}.dat").write_text(f"return {_lua(data)};\n")


def _file_name(name: str) -> str:
    """Spell a name as Prosody's file storage does."""
    return re.sub(r"[^A-Za-z0-9]", lambda match: f"%{ord(match[0]):02x}", name)


def _lua(value: object) -> str:
    """Write a value as a Lua literal."""
    if isinstance(value, Mapping):
        fields = [f"[{_lua(key)}] = {_lua(item)}" for key, item in value.items()]
    elif isinstance(value, list):
        fields = [_lua(item) for item in value]
    else:
        # JSON spells booleans, integers and printable strings as Lua does.
        return json.dumps(value, ensure_ascii=False)
    return f"{{{', '.join(fields)}}}"
