"""nginx and haproxy on loopback, each with the time-outs and buffers that it is installed with.

nginx has its own defaults, since the configuration of Debian names none of them; haproxy has
the `defaults` that Debian installs it with.

async with proxy("nginx", tmp_path, port) as at: …
"""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from qos.testing.ports import free_ports
from waiting import until

__all__ = ["PROXIES", "TCP_PROXY", "WebProxy", "proxy"]

#: The programs.
PROXIES: Final = ("nginx", "haproxy")

#: haproxy for any protocol over TCP, with the same time-outs.
TCP_PROXY: Final = "haproxy tcp"

#: Debian has both where only the administrator looks for programs.
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

_NGINX = """\
{user}daemon off;
pid {folder}/nginx.pid;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location {prefix}/ {{
            proxy_pass http://127.0.0.1:{to};
        }}
    }}
}}
"""

#: It leaves the prefix out of the requests.
_HAPROXY = """\
defaults
    mode http
    timeout connect 5000
    timeout client  50000
    timeout server  50000
frontend in
    bind 127.0.0.1:{port}
    default_backend service
backend service
    http-request replace-path {prefix}(/.*) \\1
    server one 127.0.0.1:{to}
"""

#: As for any other protocol, of which it knows nothing.
_HAPROXY_TCP = """\
defaults
    mode tcp
    timeout connect 5000
    timeout client  50000
    timeout server  50000
listen service
    bind 127.0.0.1:{port}
    server one 127.0.0.1:{to}
"""

_CONFIGS: Final = {"nginx": _NGINX, "haproxy": _HAPROXY, TCP_PROXY: _HAPROXY_TCP}


class WebProxy:
    """A proxy in front of a port.

    Args:
        name: of PROXIES, or TCP_PROXY.
        folder: for its files; it is made.
        to: the port of the service.
        prefix: the path below which the service is.

    Attributes:
        port: where it listens.
        url: of it, with the prefix.
    """

    def __init__(self, name: str, folder: Path, to: int, *, prefix: str = "") -> None:
        folder.mkdir()
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}{prefix}"
        self._name, self._output = name, folder / "output"
        self._running: Process | None = None
        file = folder / "config"
        # A worker of nginx could not use our folder as anybody else.
        user = "user root;\n" if os.geteuid() == 0 else ""
        file.write_text(
            _CONFIGS[name].format(
                folder=folder, port=self.port, to=to, prefix=prefix, user=user
            )
        )
        words: tuple[str | Path, ...] = ("-db", "-f", file)
        if name == "nginx":
            words = ("-p", folder, "-c", file, "-e", folder / "errors")
        self._words = list(map(str, words))

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        with self._output.open("ab") as output:
            self._running = await asyncio.create_subprocess_exec(
                self._name.split()[0],
                *self._words,
                stdout=output,
                stderr=output,
                env=_ENVIRONMENT,
            )
        await until(self._listens)

    async def _listens(self) -> bool:
        assert self._running is not None
        assert self._running.returncode is None, self._output.read_text()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def stop(self) -> None:
        """End it at once, with all its connections."""
        assert self._running is not None
        # nginx takes its worker along; so it is not killed.
        self._running.terminate()
        await self._running.wait()

    def reload(self) -> None:
        """Let nginx read its configuration again: a new worker takes the place of the old."""
        assert self._running is not None
        assert self._name == "nginx", self._name
        self._running.send_signal(signal.SIGHUP)


@contextlib.asynccontextmanager
async def proxy(
    name: str, folder: Path, to: int, *, prefix: str = ""
) -> AsyncIterator[str]:
    """A proxy while this lasts; yields its URL. See WebProxy."""
    running = WebProxy(name, folder, to, prefix=prefix)
    await running.start()
    try:
        yield running.url
    finally:
        await running.stop()
