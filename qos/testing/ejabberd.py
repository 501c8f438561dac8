"""A real ejabberd for tests: its configuration, accounts and rosters.

`xmpp_server` starts, stops and kills it. ejabberd runs directly in Erlang, not by
Debian's ejabberdctl, which would change to another user. ejabberd must be installed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from qos.testing.ports import free_ports
from qos.testing.xmpp_server import ServerError, XmppServer

__all__ = ["Ejabberd", "EjabberdError"]

#: The folders where distributions put ejabberd's Erlang libraries.
_LIBRARIES = ("/usr/lib/*", "/usr/lib", "/usr/local/lib")

#: Written to the log when everything is in place.
_UP = "the accounts are there"

#: Erlang code that runs after the listeners and tables are there; there is no
#: ejabberdctl to ask.
_START = """\
{{ok, _}} = application:ensure_all_started(ejabberd), \
ok = file:eval({file}), io:format("~s~n", [{up}])."""


#: A resolver without name servers: no other server is found.
_RESOLVER = """\
{{resolv_conf, ""}}.
{{hosts_file, ""}}.
{{lookup, [file]}}.
{{nameserver, {{127, 0, 0, 1}}, {port}}}.
"""


class EjabberdError(ServerError):
    """ejabberd is not installed, did not start, or not as configured."""


class Ejabberd(XmppServer):
    """One ejabberd on loopback; see `XmppServer`. It has no epmd and no cluster.

    ejabberd itself has no limit for a stanza by default.
    """

    name: ClassVar = "ejabberd"
    error: ClassVar = EjabberdError
    # ejabberd takes 3 s where Prosody takes 0.1, and 20 s where Prosody takes one.
    start_s_max: ClassVar = 90.0

    @property
    def _config_file(self) -> Path:
        # The file is YAML, of which JSON is a part.
        return self.folder / "ejabberd.yml"

    @property
    def _accounts_file(self) -> Path:
        return self.folder / "accounts.erl"

    def _command(self) -> tuple[str, ...]:
        erlang = shutil.which("erl")
        if erlang is None or _libraries() is None:
            raise EjabberdError("ejabberd is not installed (Debian package: ejabberd)")
        start = _START.format(file=_text(str(self._accounts_file)), up=_text(_UP))
        return (
            *(erlang, "-noinput"),
            # Otherwise an idle Erlang spins for a while, although others use the
            # machine.
            *("+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none"),
            *("-mnesia", "dir", _text(str(self.folder / "spool"))),
            *("-eval", start),
        )

    def _environment(self) -> Mapping[str, str]:
        return {
            # For Erlang's cookie.
            "HOME": str(self.folder),
            "ERL_LIBS": str(_libraries()),
            "ERL_INETRC": str(self._resolver_file),
            "ERL_CRASH_DUMP": str(self.folder / "crash.dump"),
            "EJABBERD_CONFIG_PATH": str(self._config_file),
            "EJABBERD_LOG_PATH": str(self.folder / "ejabberd.log"),
        }

    def _is_up(self, log: str) -> bool:
        # ejabberd continues without a port that is taken by another process.
        if "Failed to open socket" in log:
            raise self._error("ejabberd did not get its ports")
        return _UP in log

    def _write_files(self) -> None:
        (nowhere,) = free_ports(1)
        self._resolver_file.write_text(_RESOLVER.format(port=nowhere))
        (self.folder / "spool").mkdir()
        if self.ca_file is not None:
            key = self.ca_file.with_suffix(".key").read_text()
            self._certificate_file.write_text(self.ca_file.read_text() + key)
        self._accounts_file.write_text("".join(self._accounts()), encoding="utf-8")
        self._config_file.write_text(json.dumps(self._config()), encoding="utf-8")

    @property
    def _resolver_file(self) -> Path:
        return self.folder / "inetrc"

    @property
    def _certificate_file(self) -> Path:
        return self.folder / "localhost.pem"

    def _accounts(self) -> list[str]:
        """Erlang code that runs at each start.

        Existing accounts and rosters stay as they are.
        """
        host = _binary(self.domain)
        lines = [
            f"ejabberd_auth:try_register({_binary(user)}, {host}, {_binary(password)})."
            for user, password in self.accounts.items()
        ]
        for user, roster in self.rosters.items():
            for contact, subscription in roster.items():
                name, _, domain = contact.partition("@")
                words = (name, domain or self.domain, name, "", subscription)
                lines.append(
                    f"mod_admin_extra:add_rosteritem({_binary(user)}, {host}, "
                    f"{', '.join(map(_binary, words))})."
                )
        return [f"{line}\n" for line in lines]

    def _config(self) -> dict[str, object]:
        usual: dict[str, object] = {"ip": self.address, "shaper": "none"}
        if self.stanza_bytes_max is not None:
            usual["max_stanza_size"] = self.stanza_bytes_max
        client = {**usual, "module": "ejabberd_c2s", "port": self.c2s_port}
        listeners = [client]
        if self.tls_port is not None:
            listeners.append({**client, "port": self.tls_port, "tls": True})
            client["starttls"] = True
        if self.components:
            component = {"module": "ejabberd_service", "port": self.component_port}
            secrets = {
                jid: {"password": secret} for jid, secret in self.components.items()
            }
            # Each component is routed only its own domain, not all of `hosts`.
            component["global_routes"] = False
            listeners.append({**usual, **component, "hosts": secrets})
        modules = ["mod_roster", "mod_disco", "mod_ping", "mod_admin_extra"]
        if self.smacks:
            modules.append("mod_stream_mgmt")
        config: dict[str, object] = {
            "hosts": [self.domain],
            "loglevel": "info",
            "auth_method": "internal",
            "auth_password_format": "plain",
            # Stanzas for an absent component go there, and come back at once.
            "outgoing_s2s_port": free_ports(1)[0],
            "s2s_dns_retries": 0,
            "s2s_dns_timeout": 1,
            "listen": listeners,
            "modules": {module: {} for module in modules},
        }
        if self.ca_file is not None:
            config["certfiles"] = [str(self._certificate_file)]
        return config


def _libraries() -> Path | None:
    """The folder with Erlang's libraries of ejabberd; None: there is none."""
    for pattern in _LIBRARIES:
        for app_file in Path("/").glob(f"{pattern[1:]}/ejabberd-*/ebin/ejabberd.app"):
            return app_file.parents[2]
    return None


def _text(text: str) -> str:
    """A text as an Erlang string literal.

    JSON spells printable strings in the same way.
    """
    return json.dumps(text, ensure_ascii=False)


def _binary(text: str) -> str:
    """A text as an Erlang binary literal."""
    return f"<<{_text(text)}/utf8>>"
