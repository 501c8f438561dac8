"""The page on operations: a backup of an open store, and its restore."""

import json
import shlex
import sqlite3
from pathlib import Path

import pytest
from slixmpp.stanza import Message

from new_machine import run_on_new_machine
from qos.testing import friends, logged_in
from waiting import PATIENCE
from xep_qos import XEP_QOS

CONTAINERFILE = Path(__file__).parents[2] / "docs" / "code" / "Containerfile"

#: As an engine does with the file: RUN, and then CMD as USER in WORKDIR. There is no
#: server, which status 4 says.
CONTAINER = """
set -e
python3 -m venv /opt/xmpp-qos  # in place of the image's Python
. /opt/xmpp-qos/bin/activate
cd /
{RUN}
mkdir /run/secrets
printf 'jid = "lamp@localhost/1"\\npassword-file = "/run/secrets/password"\\n' \
  > /run/secrets/lamp.toml
echo secret > /run/secrets/password
cd {WORKDIR}
status=0
HOME=/ setpriv --reuid {USER} --regid {USER} --clear-groups \
  {command} --connect-timeout 2 --host 127.0.0.1 || status=$?
ls {VOLUME}
echo ended with $status
"""


async def test_a_store_that_is_open_can_be_backed_up_by_sqlite(tmp_path: Path) -> None:
    """By SQLite's online backup, which is what `.backup` of its shell does."""
    store, backup = tmp_path / "lamp.db", tmp_path / "lamp-backup.db"
    open_store = {"xep_qos": {"store": f"sqlite:{store}"}}
    restored = {"xep_qos": {"store": f"sqlite:{backup}"}}
    async with friends("me", "lamp") as server:
        async with logged_in(server, "me/1", open_store) as me:
            message = Message(sto="lamp@localhost/1")  # type: ignore[no-untyped-call]
            message["body"] = "on"
            sent = await XEP_QOS.of(me).submit(message)
            source, copy = sqlite3.connect(store), sqlite3.connect(backup)
            source.backup(copy)
            source.close()
            copy.close()
        async with logged_in(server, "me/1", restored) as me:
            assert [each.msg_id for each in XEP_QOS.of(me).outstanding()] == [
                sent.msg_id
            ]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_container_file_makes_a_listener_with_its_store(tmp_path: Path) -> None:
    """No image can be had here: its lines are run on what looks like a new machine."""
    lines = [line.split(" ", 1) for line in CONTAINERFILE.read_text().splitlines()]
    said = dict(lines)
    assert said["COPY"] == ". /src"  # which is there
    words = json.loads(said["ENTRYPOINT"]) + json.loads(said["CMD"])
    script = CONTAINER.format(**said, command=shlex.join(words))
    printed = run_on_new_machine(
        tmp_path, "bash", "-c", script, timeout_s=280 * PATIENCE
    )
    assert "lamp.db" in printed
    assert printed.endswith("ended with 4\n")
