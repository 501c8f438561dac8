"""Real servers with the limits for clients that distributions ship."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qos.testing.ejabberd import Ejabberd
from qos.testing.prosody import Prosody
from qos.testing.xmpp_server import XmppServer, mutual

__all__ = ["PASSWORD", "SERVERS", "limited", "server"]

PASSWORD = "secret"  # noqa: S105 - of accounts that only exist in a test

#: Debian's prosody.cfg.lua: 10 kB/s for a client, and 20 kB at once.
_LIMITS = """
limits = { c2s = { rate = "10kb/s"; burst = "2s"; } }
"""
_PROSODY = """
Host "*"
{limits}
modules_enabled = {{ {modules} }}
"""
_MODULES = ("roster", "saslauth", "tls", "disco", "ping", "limits")

#: ejabberd's default: 3 kB/s for a client, and 20 kB at once.
_EJABBERD = {"normal": {"rate": 3_000, "burst_size": 20_000}}


class _Shaping(Ejabberd):
    def _config(self) -> dict[str, object]:
        return _shaping(super()._config())


def _shaping(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of an ejabberd with its limits."""
    for listener in config["listen"]:
        if listener["module"] == "ejabberd_c2s":
            listener["shaper"] = "c2s_shaper"
    return config | {"shaper": _EJABBERD, "shaper_rules": {"c2s_shaper": "normal"}}


@contextlib.contextmanager
def limited(server: XmppServer) -> Iterator[None]:
    """A server that is started within has its limits for clients."""
    file = server._config_file
    before = text = file.read_text("utf-8")
    if isinstance(server, Ejabberd):
        text = json.dumps(_shaping(json.loads(before)))
    else:
        listed = "modules_enabled = {"
        assert listed in before
        text = _LIMITS + before.replace(listed, f'{listed}"limits", ', 1)
    file.write_text(text, "utf-8")
    try:
        yield
    finally:
        file.write_text(before, "utf-8")


def server(
    kind: str,
    folder: Path,
    *,
    limits: bool,
    smacks: bool,
    users: tuple[str, ...] = ("alice", "bob"),
) -> XmppServer:
    """A server with accounts, the first two of which are contacts; not started yet."""
    options: dict[str, Any] = {
        "accounts": dict.fromkeys(users, PASSWORD),
        "rosters": mutual((users[0], users[1])),
        "smacks": smacks,
    }
    folder.mkdir(parents=True)
    if kind == "ejabberd":
        return (_Shaping if limits else Ejabberd)(folder, **options)
    if limits:
        modules = [*_MODULES, *(["smacks"] if smacks else [])]
        options["extra"] = _PROSODY.format(
            limits=_LIMITS, modules=", ".join(f'"{each}"' for each in modules)
        )
    return Prosody(folder, **options)


SERVERS = ("prosody", "ejabberd")
