"""A worker-bee: runs a command for each item of a queue.

It does the same as `xmpp-qos worker`, as a starting point for your own worker. The
command gets the payload on stdin. Exit status 0 accepts the item, 75 releases it, 65
rejects it; any other is a failure. The password is in XMPP_QOS_PASSWORD. Ctrl-C or
SIGTERM stops the worker after its running commands; a second one stops it at once.

    python worker_bee.py queue.example.org orders --jid bee@example.org --
    ./handle-order
"""

import argparse
import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE
from subprocess import CalledProcessError

from slixmpp import ClientXMPP

from qos.errors import QosError
from qos.worker import Job, Worker

RELEASE, REJECT = os.EX_TEMPFAIL, os.EX_DATAERR  # 75 and 65, as in sysexits.h

log = logging.getLogger("worker-bee")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run a command for each item.")
    parser.add_argument("service", help="JID of the queue service")
    parser.add_argument("node", help="name of the queue")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="after --")
    parser.add_argument("--jid", required=True, help="account to log in with")
    parser.add_argument("--host", help="of the server (default: as its DNS says)")
    parser.add_argument("--port", type=int, default=5222)
    parser.add_argument("--tls", choices=("starttls", "off"), default="starttls")
    parser.add_argument("--parallel", type=int, default=1, help="items at a time")
    return parser.parse_args()


def new_client(jid: str, password: str, *, tls: bool) -> ClientXMPP:
    scram = {"unencrypted_scram": not tls}
    client = ClientXMPP(jid, password, plugin_config={"feature_mechanisms": scram})
    client.auto_authorize = None  # slixmpp's default lets in everybody who asks
    client.enable_direct_tls, client.enable_starttls = False, tls
    client.enable_plaintext = not tls
    return client


async def handle(job: Job, command: list[str]) -> None:
    """Run the command; an exception here counts as a failed delivery."""
    facts = {"QOS_ITEM_ID": job.id, "QOS_NODE": job.node}
    facts["QOS_DELIVERY_COUNT"] = str(job.delivery_count)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, env={**os.environ, **facts}, process_group=0
    )
    try:
        await process.communicate(job.payload_text.encode())
    except asyncio.CancelledError:  # the grace time is over
        process.kill()
        raise
    log.info("%s: exit status %s", job.id, process.returncode)
    if process.returncode == RELEASE:
        await job.release()
    elif process.returncode == REJECT:
        await job.reject(f"{command[0]} says so")
    elif process.returncode:
        raise CalledProcessError(process.returncode, command)


async def main() -> None:
    options = parse_arguments()
    client = new_client(
        options.jid, os.environ["XMPP_QOS_PASSWORD"], tls=options.tls != "off"
    )
    refused = asyncio.Event()

    def connect(_event: object = None) -> None:
        client.connect(options.host or "", options.port)

    def refuse(_event: object) -> None:
        refused.set()
        worker.stop()

    # slixmpp does not reconnect by itself when a connection is lost.
    client.add_event_handler("disconnected", connect)
    client.add_event_handler("failed_all_auth", refuse)
    worker = Worker(client, options.service, options.node, parallel=options.parallel)
    worker.install_signal_handlers()
    connect()
    await worker.run(lambda job: handle(job, options.command))
    client.del_event_handler("disconnected", connect)
    await client.disconnect()
    if refused.is_set():
        sys.exit("the server has refused the login")


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("slixmpp").setLevel(logging.CRITICAL)
    try:
        asyncio.run(main())
    except QosError as error:
        sys.exit(str(error))
