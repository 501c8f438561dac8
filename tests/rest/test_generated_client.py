"""A client that openapi-python-client makes out of the description, at a real gateway.

The calls of the client block, so they are made in a thread beside the loop of the gateway.
"""

import asyncio
import contextlib
import importlib
import io
import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

import httpx
import pytest

from qos.rest.paths import find
from qos.rest.routes import ROUTES, openapi
from rest_bench import rest
from waiting import LIMIT_S

#: One process makes the client once.
pytestmark = pytest.mark.xdist_group("generated-client")

PACKAGE = "generated_queues"

#: The generator sends some media types as they are, if it is told to.
CONFIG = """
post_hooks: []
content_type_overrides:
  application/atom+xml: application/octet-stream
  application/xml: application/octet-stream
  application/hornetq.jms.queue+xml: application/octet-stream
  application/hornetq.jms.topic+xml: application/octet-stream
"""


class Answer(Protocol):
    """The answer that a call of the client returns."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def content(self) -> bytes: ...
    @property
    def parsed(self) -> object: ...


class Model(Protocol):
    """A model of the client, made from JSON."""

    def to_dict(self) -> Mapping[str, Any]: ...


class Client:
    """Makes the calls of the generated client."""

    def __init__(self, web: int, user: str = "alice") -> None:
        secret = b64encode(f"{user}:secret".encode()).decode()
        made = importlib.import_module(f"{PACKAGE}.client").AuthenticatedClient
        self._client = made(
            base_url=f"http://127.0.0.1:{web}",
            token=secret,
            prefix="Basic",
            raise_on_unexpected_status=True,
            # No file of authorities: none of them is asked for.
            httpx_args={"trust_env": False},
        )

    def call(self, name: str, *path: str, **arguments: object) -> Answer:
        """Call a function, such as `queues.post_once`, with the variables of its path."""
        module = importlib.import_module(f"{PACKAGE}.api.{name}")
        return cast(
            Answer, module.sync_detailed(*path, client=self._client, **arguments)
        )

    def close(self) -> None:
        self._client.get_httpx_client().close()


def of_type(name: str) -> type:
    """A type of the generated client."""
    return cast(type, getattr(importlib.import_module(f"{PACKAGE}.models"), name))


def file(content: bytes) -> object:
    """A body."""
    types = importlib.import_module(f"{PACKAGE}.types")
    return cast(object, types.File(payload=io.BytesIO(content)))


def body_of(answer: Answer) -> bytes:
    """The message in an answer, as the client has read it."""
    payload = getattr(answer.parsed, "payload", None)
    assert isinstance(payload, io.BytesIO), answer
    return payload.getvalue()


def json_of(answer: Answer, model: str) -> Mapping[str, Any]:
    """The values in a model of the client."""
    read = answer.parsed
    assert isinstance(read, of_type(model)), answer
    return cast(Model, read).to_dict()


def link(answer: Answer, rel: str) -> dict[str, str]:
    """The variables of the path of a link, as httpx reads the header."""
    links = httpx.Response(200, headers=dict(answer.headers)).links
    found = find(links[rel]["url"])
    assert found is not None
    return found[1]


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The output of the generator; the client can be imported meanwhile."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_bytes(openapi())
    (folder / "config.yml").write_text(CONFIG)
    made = subprocess.run(
        [
            *(Path(sys.executable).parent / "openapi-python-client", "generate"),
            *("--path", "openapi.json", "--config", "config.yml"),
            *("--meta", "none", "--output-path", PACKAGE),
        ],
        cwd=folder,
        capture_output=True,
        timeout=2 * LIMIT_S,
        check=True,
    )
    sys.path.insert(0, str(folder))
    yield made.stdout.decode() + made.stderr.decode()
    sys.path.remove(str(folder))
    for name in [each for each in sys.modules if each.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_each_call_can_be_generated(generated: str) -> None:
    """The generator has no way to send multipart/mixed; it leaves nothing else out."""
    assert "not be generated" not in generated
    # Two for queues, two for topics.
    assert generated.count("WARNING") == 4
    assert generated.count("Unsupported content type multipart/mixed") == 4
    folder = Path(importlib.import_module(PACKAGE).__file__ or "").parent / "api"
    made = {each.stem for each in folder.glob("*/*_*.py")} - {"__init__"}
    names = {(each.name, method) for each in ROUTES.values() for method in each.methods}
    wanted = {f"{verb.lower()}_{name.replace('-', '_')}" for name, verb in names}
    assert wanted <= made


def round_trip(web: int) -> None:
    """Post, take and acknowledge; what each call returns is as the description says."""
    node = "a queue/of mine"
    with contextlib.closing(Client(web)) as alice:
        made = alice.call(
            "hornetq.post_hornetq_queues",
            body=file(f"<queue name='{node}'/>".encode()),
        )
        assert (made.status_code, made.parsed) == (201, None)

        # With a one-off link.
        link_made = alice.call("queues.post_once", node)
        assert link_made.status_code == 200
        once = link(link_made, "create-next")["link"]
        posted = alice.call("queues.post_post", node, once, body=file(b"\x00 one"))
        assert posted.status_code == 200
        again = alice.call("queues.post_post", node, once, body=file(b"\x00 one"))
        assert again.status_code == 405
        assert again.parsed == "it was posted before\n"
        assert link(again, "create-next")["link"] != once
        # And as a plain post.
        plain = alice.call(
            "queues.post_messages",
            node,
            body=file(b"two"),
            priority=9,
            msg_properties="colour=red",
            content_language="de",
            idempotency_key="k 2",
        )
        assert plain.status_code == 200
        shown = find(plain.headers["content-location"])
        assert shown is not None
        seen = alice.call("queues.get_message", *shown[1].values())
        assert body_of(seen) == b"two"

        stats = json_of(alice.call("queues.get_queue", node), "Node")
        assert stats["counts"]["available"] == 2

        taken = alice.call("queues.post_consumer", node, selector="colour = 'red'")
        assert (taken.status_code, body_of(taken)) == (200, b"two")
        assert taken.headers["msg-priority"] == "9"
        assert taken.headers["msg-properties"] == 'colour="red"'
        assert taken.headers["content-language"] == "de"
        assert taken.headers["content-type"] == "application/octet-stream"
        place = link(taken, "acknowledgement").values()
        form = of_type("PostAcknowledgementBody")
        yes = of_type("PostAcknowledgementBodyAcknowledge")("true")
        for status in (204, 405):
            done = alice.call(
                "queues.post_acknowledgement", *place, body=form(acknowledge=yes)
            )
            assert done.status_code == status
        rejected = alice.call("queues.post_consumer", node)
        assert body_of(rejected) == b"\x00 one"
        done = alice.call(
            "queues.post_acknowledgement",
            *link(rejected, "acknowledgement").values(),
            body=form(reject="no"),
        )
        assert done.status_code == 204
        none = alice.call("queues.post_consumer", node, prefer="wait=0")
        assert (none.status_code, none.headers["retry-after"]) == (202, "0")
        assert none.parsed == "there is no message yet; ask again\n"
        counts = json_of(alice.call("queues.get_queue", node), "Node")["counts"]
        assert (counts["accepted"], counts["dead"]) == (1, 1)
        with pytest.MonkeyPatch.context() as patch:
            # As with too many sets of subscribers that are excluded.
            patch.setattr("qos.core.queue.stats._stuck", lambda *_: None)
            counts = json_of(alice.call("queues.get_queue", node), "Node")["counts"]
        assert counts["excluded"] is None
        described = json.loads(openapi())["components"]["schemas"]["Counts"]
        assert "null" in described["properties"]["excluded"]["type"]


@pytest.mark.usefixtures("generated")
async def test_a_generated_client_posts_takes_and_acknowledges(tmp_path: Path) -> None:
    async with rest(tmp_path) as bench:
        await asyncio.to_thread(round_trip, bench.web)


def subscribed(web: int) -> None:
    """Make a queue that copies from a topic, and delete it."""
    with contextlib.closing(Client(web)) as alice:
        alice.call("hornetq.post_hornetq_topics", body=file(b"<topic name='prices'/>"))
        form = of_type("PostTopicSubscriptionsBody")(name="mine")
        for status in (201, 200):
            made = alice.call("topics.post_topic_subscriptions", "prices", body=form)
            assert (made.status_code, made.parsed) == (status, None)
        feed = (
            b"<feed xmlns='http://www.w3.org/2005/Atom'>"
            b"<entry><content>1</content></entry><entry><content>2</content></entry>"
            b"</feed>"
        )
        posted = alice.call("topics.post_topic_batches", "prices", body=file(feed))
        assert posted.status_code == 200
        assert str(posted.parsed).count("/topics/prices/messages/") == 2
        first = alice.call("topics.get_topic_first", "prices")
        assert body_of(first) == b"1"
        after = first.headers["link"].partition("?after=")[2].partition(">")[0]
        following = alice.call("topics.get_topic_next", "prices", after=after)
        assert body_of(following) == b"2"
        listed = json_of(alice.call("service.get_service"), "Service")
        assert listed == {
            "queues": [{"name": "mine", "href": "/queues/mine"}],
            "topics": [{"name": "prices", "href": "/topics/prices"}],
        }
        for status in (204, 404):
            done = alice.call("topics.delete_topic_subscription", "prices", "mine")
            assert done.status_code == status
        gone = alice.call("queues.get_queue", "mine")
        assert gone.status_code == 404
        assert "mine" in str(gone.parsed)
    with contextlib.closing(Client(web, "mallory")) as mallory:
        refused = mallory.call("service.get_service")
        assert (refused.status_code, refused.parsed) == (401, "log in\n")


@pytest.mark.usefixtures("generated")
async def test_a_generated_client_makes_and_deletes_a_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qos.rest.server._WRONG_S", 0)
    async with rest(tmp_path) as bench:
        await asyncio.to_thread(subscribed, bench.web)
