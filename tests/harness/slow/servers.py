"""Real servers with the limits for clients that distributions ship."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qos.testing.ejabberd import Ejabberd
from qos.testing.prosody import Prosody
from qos.testing.xmpp_server import XmppServer, mutual

__all__ = ["PASSWORD", "SERVERS", "server"]

PASSWORD = "secret"  # noqa: S105 - of accounts that only exist in a test

#: Debian's prosody.cfg.lua: 10 kB/s for a client, and 20 kB at once.
_PROSODY = """
Host "*"
limits = {{ c2s = {{ rate = "10kb/s"; burst = "2s"; }} }}
modules_enabled = {{ {modules} }}
"""
_MODULES = ("roster", "saslauth", "tls", "disco", "ping", "limits")

#: ejabberd's default: 3 kB/s for a client, and 20 kB at once.
_EJABBERD = {"normal": {"rate": 3_000, "burst_size": 20_000}}


class _Shaping(Ejabberd):
    def _config(self) -> dict[str, object]:
        config: dict[str, Any] = super()._config()
        config["listen"][0]["shaper"] = "c2s_shaper"
        return config | {"shaper": _EJABBERD, "shaper_rules": {"c2s_shaper": "normal"}}


def server(kind: str, folder: Path, *, limits: bool, smacks: bool) -> XmppServer:
    """A server with two accounts that are contacts, not started yet."""
    options: dict[str, Any] = {
        "accounts": {"alice": PASSWORD, "bob": PASSWORD},
        "rosters": mutual(("alice", "bob")),
        "smacks": smacks,
    }
    folder.mkdir(parents=True)
    if kind == "ejabberd":
        return (_Shaping if limits else Ejabberd)(folder, **options)
    if limits:
        modules = [*_MODULES, *(["smacks"] if smacks else [])]
        options["extra"] = _PROSODY.format(
            modules=", ".join(f'"{each}"' for each in modules)
        )
    return Prosody(folder, **options)


SERVERS = ("prosody", "ejabberd")
