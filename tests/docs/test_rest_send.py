"""The page on sending to devices: its commands are typed."""

import asyncio
import os
import subprocess
from pathlib import Path

from qos.users import hashed
from send_bench import SendBench, xmpp
from type_page import blocks
from waiting import LIMIT_S

PAGE = Path(__file__).parents[2] / "docs" / "rest-send.md"


async def test_the_curl_of_the_page_on_devices(tmp_path: Path) -> None:
    """In one shell, as a reader would; what is printed is what the page shows."""
    users = tmp_path / "users"
    users.write_text(f"shop:{hashed('secret')}\n")
    users.chmod(0o600)
    (tmp_path / "targets").write_text("shop: lamp@localhost\n")
    typed, wanted = "set -o pipefail\n", ""
    for block in blocks(PAGE.read_text().replace("lamp@example.org", "lamp@localhost")):
        if block.language == "sh":
            typed += block.text
        else:
            wanted += block.text
    async with xmpp() as server:
        bench = SendBench(tmp_path, server)
        async with bench.serving(), bench.device(trust="shop@queue.localhost"):
            process = await asyncio.create_subprocess_exec(
                *("/bin/bash", "--norc", "-e", "-c", typed),
                cwd=tmp_path,
                env=os.environ | {"BASE": f"http://127.0.0.1:{bench.web}"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            async with asyncio.timeout(2 * LIMIT_S):  # they are many
                out, _ = await process.communicate()
    printed = out.decode().replace("\r", "")
    assert (process.returncode, printed) == (0, wanted)
    assert bench.got.get_nowait()["body"] == "on"
    assert bench.got.empty()
