"""What a job says of its payload: JSON, a text, a body of another protocol, or XML."""

from base64 import b64encode

import pytest
from slixmpp import ClientXMPP

from qos.core.amqp import values
from qos.core.amqp.sections import Section, section
from qos.core.contents import Json, wrap
from qos.worker import Job, Worker
from worker_setup import NODE, QUEUE, Queue
from xep_0254 import NewItem

_JSON = b'{"n": [1, "\xc3\xbc"]}'
_VALUE: Json = {"n": [1, "ü"]}

#: The same as an AMQP message: its properties with a content-type, and one data section.
_FIELDS = [values.NULL] * 6 + [values.symbol("application/json")]
_BARE = section(Section.PROPERTIES, values.pack_list(_FIELDS)) + section(
    Section.DATA, values.binary(_JSON)
)


async def taken(bee: ClientXMPP, queue: Queue) -> Job:
    """The next job."""
    async with Worker(bee, QUEUE, NODE) as worker:
        job = await anext(worker)
        await job.accept()
        return job


async def test_a_value_and_a_text_need_no_xml(bee: ClientXMPP, queue: Queue) -> None:
    """`publish(json=…)`, `job.json()`; likewise for a text."""
    await queue.create()
    await queue.owner.publish(QUEUE, NODE, json=_VALUE)
    job = await taken(bee, queue)
    assert job.json() == _VALUE
    assert job.content() == b'{"n":[1,"\xc3\xbc"]}'
    with pytest.raises(ValueError, match=f"item '{job.id}' has no text"):
        job.text()
    await queue.owner.publish(QUEUE, NODE, [NewItem(text="<two> words")])
    job = await taken(bee, queue)
    assert job.text() == "<two> words"
    with pytest.raises(ValueError, match=f"item '{job.id}' has no JSON"):
        job.json()


@pytest.mark.parametrize(
    "payload",
    [
        wrap(_JSON + b"\r\n", "application/json"),
        f"<message xmlns='xmpp-qos:amqp:0'>{b64encode(_BARE).decode()}</message>",
    ],
    ids=["http", "amqp"],
)
async def test_json_may_have_come_by_another_protocol(
    bee: ClientXMPP, queue: Queue, payload: str
) -> None:
    """A handler need not know which."""
    await queue.create()
    await queue.owner.publish(QUEUE, NODE, [NewItem(payload)])
    job = await taken(bee, queue)
    assert job.json() == _VALUE


async def test_the_content_of_another_element_is_the_element(
    bee: ClientXMPP, queue: Queue
) -> None:
    await queue.create()
    await queue.publish("a")
    job = await taken(bee, queue)
    assert job.content() == b"<job xmlns='u:job'>a</job>"
    with pytest.raises(ValueError, match="no JSON"):
        job.json()
