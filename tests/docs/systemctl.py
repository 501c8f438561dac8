#!/usr/bin/env python3
"""systemctl and journalctl where no systemd runs: starts and stops the programs of units.

A unit's program gets the user, the folders, the credentials and the environment that
the unit says, and its output goes to a log. A unit of Type=notify has started when its
program says so. `systemd-analyze verify` checks the unit first. What isolates a program (ProtectSystem=, NoNewPrivileges=) is left out.
"""

import contextlib
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

LOGS = Path("/run/logs")
PIDS = Path("/run/pids")
#: systemd's DefaultTimeoutStartSec= and DefaultTimeoutStopSec=.
START_S = STOP_S = 90
FOLDERS = (Path("/etc/systemd/system"), Path("/lib/systemd/system"))


def unit(name: str) -> Path:
    for folder in FOLDERS:
        if (path := folder / f"{name}.service").exists():
            return path
    sys.exit(f"Unit {name}.service not found.")


def settings(path: Path) -> dict[str, list[str]]:
    """All that stands in [Service]; a key may be there several times."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in path.read_text().replace("\\\n", " ").splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key.strip(), []).append(value.strip())
    return found


def stop(name: str) -> None:
    """End the program of a unit, if it runs."""
    where = PIDS / name
    if not where.exists():
        return
    pid = int(where.read_text())
    where.unlink()
    ends_at = time.monotonic() + STOP_S
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        while runs(pid):
            if time.monotonic() > ends_at:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)


def runs(pid: int) -> bool:
    """Whether a process runs; nobody may have waited for one that has ended."""
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        )
    except FileNotFoundError:
        return False


def start(name: str) -> None:
    subprocess.run(["/usr/bin/systemd-analyze", "verify", unit(name)], check=True)
    service = settings(unit(name))
    dynamic = service.get("DynamicUser") == ["yes"]
    user = "nobody" if dynamic else service.get("User", ["root"])[0]
    environment = {"PATH": os.environ["PATH"]}

    def folder(path: Path) -> str:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.chown(path, user)
        return str(path)

    for each in service.get("RuntimeDirectory", []):
        environment["RUNTIME_DIRECTORY"] = folder(Path("/run", each))
    for each in service.get("StateDirectory", []):
        environment["STATE_DIRECTORY"] = folder(Path("/var/lib", each))
    for each in service.get("LoadCredential", []):
        credential, _, source = each.partition(":")
        where = Path(folder(Path("/run/credentials", f"{name}.service")), credential)
        where.write_bytes(Path(source).read_bytes())
        where.chmod(0o400)
        shutil.chown(where, user)
        environment["CREDENTIALS_DIRECTORY"] = str(where.parent)
    command = service["ExecStart"][0]
    for variable, value in environment.items():
        command = command.replace(f"${{{variable}}}", value)
    ready = None
    if service.get("Type") == ["notify"]:
        where = Path(folder(Path("/run/notify", name)), "socket")
        where.unlink(missing_ok=True)
        ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ready.bind(str(where))
        shutil.chown(where, user)
        ready.settimeout(START_S)
        environment["NOTIFY_SOCKET"] = str(where)
    LOGS.mkdir(exist_ok=True)
    with (LOGS / name).open("ab") as log:
        process = subprocess.Popen(
            shlex.split(command),
            user=user,
            group=pwd.getpwnam(user).pw_gid,
            extra_groups=[],
            cwd=service.get("WorkingDirectory", ["/"])[0],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    PIDS.mkdir(exist_ok=True)
    (PIDS / name).write_text(str(process.pid))
    if ready is not None and ready.recv(4096) != b"READY=1":
        sys.exit(f"Job for {name}.service failed.")


def main(program: str, *words: str) -> None:
    if Path(program).name == "journalctl":
        sys.stdout.write((LOGS / words[words.index("--unit") + 1]).read_text())
    elif words[0] == "restart":
        stop(words[-1])
        start(words[-1])
    elif words[:2] == ("enable", "--now"):
        start(words[-1])
    elif words[:2] == ("disable", "--now"):
        for name in words[2:]:
            stop(name)
    elif words != ("daemon-reload",):
        sys.exit(f"the test does not know: systemctl {shlex.join(words)}")


main(*sys.argv)
