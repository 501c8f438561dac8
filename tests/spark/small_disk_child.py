"""Audits the same journals on disks of several sizes, in a namespace of mounts of its own.

A line of JSON tells how an audit has ended: its size, its status and its stderr.
"""

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

from qos.cli import main
from qos.spark.session import spark_session


def audit(journals: str, disk: Path, size: str) -> dict[str, object]:
    disk.mkdir()
    options = ("-t", "tmpfs", "-o", f"size={size}", "tmpfs")
    subprocess.run(("mount", *options, disk), check=True)  # noqa: S607 - of the system
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(io.StringIO()):
        status = main(["audit", journals, "--out", str(disk / "out"), "--json"])
    return {"size": size, "status": status, "stderr": stderr.getvalue()}


def audit_all(journals: str, folder: str, *sizes: str) -> None:
    with spark_session("small disks", master="local[2]", quiet=True):
        for size in sizes:
            print(json.dumps(audit(journals, Path(folder, size), size)), flush=True)


audit_all(*sys.argv[1:])
