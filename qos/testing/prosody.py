"""A real Prosody for tests: its configuration, accounts and rosters.

`xmpp_server` starts, stops and kills it. Prosody must be installed.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import ClassVar, Unpack

from qos.testing.xmpp_server import ServerError, ServerOptions, XmppServer, mutual

__all__ = ["MakeProsody", "Prosody", "ProsodyError", "mutual"]


class ProsodyError(ServerError):
    """Prosody is not installed, did not start, or not as configured."""


class Prosody(XmppServer):
    """One Prosody on loopback; see `XmppServer`.

    Args:
        folder: An empty folder for this server alone.
        nagle: Whether to leave Nagle's algorithm on, as Prosody does by default.
        extra: Lua to append to the configuration, such as `Component "muc.localhost"
            "muc"`.
        options: The options of any server. Prosody's own limits for a stanza are 256
            KiB and, for components, 512 KiB.
    """

    name: ClassVar = "prosody"
    error: ClassVar = ProsodyError

    def __init__(
        self,
        folder: Path,
        *,
        nagle: bool = False,
        extra: str = "",
        **options: Unpack[ServerOptions],
    ) -> None:
        super().__init__(folder, **options)
        self.nagle = nagle
        self.extra = extra
        self._log_file = folder / "prosody.log"

    @property
    def _config_file(self) -> Path:
        return self.folder / "prosody.cfg.lua"

    def _command(self) -> tuple[str, ...]:
        binary = shutil.which("prosody")
        if binary is None:
            raise ProsodyError("prosody is not installed (Debian package: prosody)")
        return (binary, "--config", str(self._config_file), "-F")

    def _log_files(self) -> tuple[Path, ...]:
        return (self._console_file, self._log_file)

    def _is_up(self, log: str) -> bool:
        # Prosody continues without a port that is taken by another process.
        if "Failed to open server port" in log:
            raise self._error("prosody did not get its ports")
        return f"Activated service 'c2s' on [{self.address}]:{self.c2s_port}" in log

    def _write_files(self) -> None:
        self._config_file.write_text(self._config())
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

    def _config(self) -> str:
        modules = ["roster", "saslauth", "tls", "disco", "ping"]
        options: dict[str, object] = {
            # Without it, Prosody as root would accept connections, but no login.
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
