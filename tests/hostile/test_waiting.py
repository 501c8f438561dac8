"""Requests that wait for a decision use limited memory, whoever sends them."""

from __future__ import annotations

import asyncio
from xml.etree import ElementTree as ET

from grammar import Asked
from qos.core.message.model import NAMESPACES
from siege import Siege, besieged_device
from waiting import limit
from xep_qos import XEP_QOS

BODY = "x" * 100_000

#: No question is repeated before the test lets this time pass.
RETRY_S = 500.0


def flood(siege: Siege, count: int) -> list[Asked]:
    """This many messages of 100 kB, each with another sender."""
    asked = [Asked(f"a{number}@x/1", f"i{number}") for number in range(count)]
    for each in asked:
        text = (
            f"<iq type='set' id='{each.iq_id}' from='{each.source}' to='{siege.jid}'>"
            f"<assured xmlns='{NAMESPACES[0]}' msgId='1'><message xmlns='jabber:client'>"
            f"<body>{BODY}</body></message></assured></iq>"
        )
        siege.send(text.encode())
    return asked


async def test_requests_that_wait_for_the_application_are_bounded_in_bytes() -> None:
    """A slow function of the application must not let them fill the memory.

    A request that may wait is answered when it is decided, and any other at once.
    """
    decide = asyncio.Event()

    async def trust(_jid: str) -> bool:
        await decide.wait()
        return True

    async with besieged_device(trust=trust) as siege:
        asked = flood(siege, 100)
        await siege.settle()
        room = 4 * 1024 * 1024 // len(BODY)
        assert set(siege.answers()) & set(asked) == set(asked[room:])
        decide.set()
        await siege.settle(asked)
        answers = siege.answers()
        assert all(answers.count(each) == 1 for each in asked)
        # A decision makes room.
        siege.written.clear()
        await siege.settle(flood(siege, 30))


async def test_a_broken_answer_to_our_question_does_not_hold_up_our_messages() -> None:
    """slixmpp fails on an error without a known condition. It is an answer, though."""
    async with besieged_device(retry_first_s=RETRY_S, retry_max_s=RETRY_S) as siege:
        message = siege.xmpp.make_message("alice@localhost/a", "x")
        await XEP_QOS.of(siege.xmpp).submit(message)
        await siege.settle()
        (question,) = [xml for xml in siege.written if xml.get("type") == "get"]
        siege.send(
            f"<iq type='error' id='{question.get('id')}' from='alice@localhost/a'"
            f" to='{siege.jid}'><error type='cancel'/></iq>".encode()
        )
        async with limit():
            while not offers(siege):
                await siege.settle()


def offers(siege: Siege) -> list[ET.Element]:
    """Its offers so far."""
    name = f"{{{NAMESPACES[0]}}}assured"
    return [each for xml in siege.written for each in xml.iter(name)]
