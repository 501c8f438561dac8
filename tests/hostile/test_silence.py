"""The contents of messages are in no log of ours, at any level, and in no event."""

from __future__ import annotations

import logging
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from qos.core.message.model import NAMESPACES
from siege import QUEUES, Siege, besieged_device, besieged_service
from xep_0254.namespaces import PUBSUB

CANARY = "canary-of-the-payload"
INNER = f"<message xmlns='jabber:client'><body>{CANARY}</body></message>"
LOGGERS = ("qos", "xep_qos", "xep_0254", "xep_0337")

#: Correct, over the quota, malformed in each way, and foreign.
CONTENTS = (
    *(f"<assured xmlns='{{0}}' msgId='{n}'>{INNER}</assured>" for n in (1, 2, 3)),
    "<deliver xmlns='{0}' msgId='1'/>",
    f"<acknowledged xmlns='{{0}}'>{INNER}</acknowledged>",
    f"<acknowledged xmlns='{{0}}'>{INNER}{INNER}</acknowledged>",
    f"<assured xmlns='{{0}}'>{INNER}</assured>",
    f"<assured xmlns='{{0}}' msgId='4'>{CANARY}</assured>",
    f"<assured xmlns='{{0}}' msgId='4'><{CANARY}/></assured>",
    f"<batch xmlns='xmpp-qos:batch:0'>{INNER}</batch>",
    f"<received xmlns='{{0}}'>{INNER}</received>",
)
ITEM = f"<item id='1'><x xmlns='urn:x'>{CANARY}</x></item>"
QUEUED = (
    "<create node='jobs'/>",
    f"<publish node='jobs'>{ITEM}</publish>",
    f"<publish node='none'>{ITEM}</publish>",
    f"<publish>{ITEM}</publish>",
    f"<publish node='jobs'><item>{CANARY}</item></publish>",
    f"<publish node='jobs'>{ITEM}{ITEM}</publish>",
    f"<retract node='jobs'>{ITEM}</retract>",
    f"<unknown node='jobs'>{ITEM}</unknown>",
)


async def send(siege: Siege, source: str, contents: tuple[str, ...]) -> None:
    for number, content in enumerate(contents):
        head = f"type='set' id='i{number}' from='{source}' to='{siege.jid}'"
        siege.send(f"<iq {head}>{content}</iq>".encode())
    await siege.settle()


def check(siege: Siege, caplog: pytest.LogCaptureFixture) -> None:
    ours = [each for each in caplog.records if each.name.split(".")[0] in LOGGERS]
    assert ours
    assert not [
        each for each in ours if CANARY in f"{each.getMessage()} {each.exc_info}"
    ]
    # It is not repeated to its sender or to an event log either.
    assert not [xml for xml in siege.written if CANARY.encode() in ET.tostring(xml)]


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    for name in LOGGERS:
        caplog.set_level(logging.DEBUG, name)


async def test_a_message_is_in_no_log_and_no_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whether it is accepted or refused, and whoever sends it: each is reported."""
    options = {"quota_messages": 1, "trust": "alice@localhost"}
    async with besieged_device(event_interval_s=1e-6, **options) as siege:
        arrived: list[str] = []
        siege.xmpp.add_event_handler("message", lambda m: arrived.append(m["body"]))
        for source in ("alice@localhost/a", "mallory@localhost/m"):
            await send(siege, source, tuple(c.format(NAMESPACES[0]) for c in CONTENTS))
        assert set(arrived) == {CANARY}
        assert sum(siege.reported.values()) > 5
        check(siege, caplog)


async def test_an_item_is_in_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only an entitled account gets it, in an event or by browsing."""
    async with besieged_service(tmp_path) as siege:
        for source in ("alice@localhost/a", "mallory@localhost/m"):
            wrapped = (f"<pubsub xmlns='{PUBSUB}'>{each}</pubsub>" for each in QUEUED)
            await send(siege, source, tuple(wrapped))
            # The events are there: the service itself logs nothing here.
            content = f"<assured xmlns='{NAMESPACES[0]}'>{INNER}</assured>"
            await send(siege, source, (content,))
        assert siege.jid == QUEUES
        check(siege, caplog)
