"""A test of an application: the lamp gets each command once, over a bad link."""

import asyncio

from qos.testing import Link, friends, logged_in
from xep_qos import XEP_QOS


async def test_each_command_comes_once() -> None:
    came = []
    link = Link(loss=0.2, seed=1)
    quick = {"xep_qos": {"retry_first_s": 0.1, "retry_max_s": 0.5}}
    async with (
        friends("controller", "lamp", link=link) as server,
        logged_in(server, "lamp/1", quick) as lamp,
        logged_in(server, "controller", quick) as controller,
    ):
        lamp.add_event_handler("message", lambda message: came.append(message["body"]))
        qos = XEP_QOS.of(controller)
        commands = [f"level {level}" for level in range(10)]
        await asyncio.gather(*(qos.send("lamp@localhost/1", each) for each in commands))
    assert sorted(came) == commands
