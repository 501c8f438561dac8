"""nginx and haproxy on loopback, each with the time-outs and buffers that it is installed with.

nginx has its own defaults, since the configuration of Debian names none of them; haproxy has
the `defaults` that Debian installs it with.

async with proxy("nginx", tmp_path, port) as at: …
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from qos.testing.ports import free_ports
from waiting import until

__all__ = ["PROXIES", "proxy"]

#: The programs.
PROXIES: Final = ("nginx", "haproxy")

#: Debian has both where only the administrator looks for programs.
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}

_NGINX = """\
daemon off;
master_process off;
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


@contextlib.asynccontextmanager
async def proxy(
    name: str, folder: Path, to: int, *, prefix: str = ""
) -> AsyncIterator[str]:
    """A proxy in front of a port; yields its URL, with the prefix.

    Args:
        name: of PROXIES.
        folder: for its files; it is made.
        to: the port of the service.
        prefix: the path below which the service is.
    """
    port, words = _configured(name, folder, to, prefix)
    with (folder / "output").open("wb") as output:
        running = await asyncio.create_subprocess_exec(
            name, *words, stdout=output, stderr=output, env=_ENVIRONMENT
        )

    async def listens() -> bool:
        assert running.returncode is None, (folder / "output").read_text()
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await until(listens)
        yield f"http://127.0.0.1:{port}{prefix}"
    finally:
        running.kill()
        await running.wait()


def _configured(name: str, folder: Path, to: int, prefix: str) -> tuple[int, list[str]]:
    """The port of a proxy, and its arguments."""
    folder.mkdir()
    (port,) = free_ports(1)
    text = {"nginx": _NGINX, "haproxy": _HAPROXY}[name]
    file = folder / "config"
    file.write_text(text.format(folder=folder, port=port, to=to, prefix=prefix))
    words = {
        "nginx": ("-p", folder, "-c", file, "-e", folder / "errors"),
        "haproxy": ("-db", "-f", file),
    }[name]
    return port, list(map(str, words))
