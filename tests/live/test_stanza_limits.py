"""A message that is too large for a real Prosody ends alone, and no other with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from devices import device, outcome_of
from qos.core.message.model import Level, OutgoingState
from qos.errors import MessageTooLarge
from qos.testing.prosody import MakeProsody
from waiting import limit, until

BOB_B = "bob@localhost/b"

#: Prosody looks at the size of a stanza with each 8 KiB, until it is complete.
LIMIT = 20_000
LARGE = "x" * 60_000

#: A module of Prosody that announces the limit (XEP-0478), as later versions do.
ANNOUNCES = """
module:hook("stream-features", function (event)
    local bytes = event.origin.type == "c2s_unauthed" and 10000 or %d;
    event.features:tag("limits", { xmlns = "urn:xmpp:stream-limits:0" })
        :text_tag("max-bytes", tostring(bytes)):up();
end);
"""


@pytest.mark.parametrize("level", [Level.ACKNOWLEDGED, Level.ASSURED])
async def test_twenty_messages_arrive_beside_one_that_is_too_large(
    make_prosody: MakeProsody, level: Level
) -> None:
    """Before, none of them arrived as long as the large one was there."""
    server = await make_prosody(stanza_bytes_max=LIMIT)
    async with device(server, "bob/b") as bob, device(server, "alice/a") as alice:
        alice.keep_connected()
        bodies = [f"{number}" for number in range(20)]
        deliveries = []
        for body in (*bodies[:10], LARGE, *bodies[10:]):
            message = alice.message(BOB_B, body)
            deliveries.append(await alice.qos.submit(message, level=level))
        outcomes = [await outcome_of(each) for each in deliveries]
        large = outcomes.pop(10)
        assert {each.status for each in outcomes} == {OutgoingState.DELIVERED}
        assert set(bob.arrivals.bodies) == set(bodies)
        assert large.status is OutgoingState.NOT_DELIVERED
        assert large.condition == "policy-violation"
        assert alice.sessions == 3


async def test_a_limit_that_the_server_announces_is_not_tried(
    make_prosody: MakeProsody, tmp_path: Path
) -> None:
    """The one that counts is that of the stream after the login."""
    (tmp_path / "mod_announces.lua").write_text(ANNOUNCES % LIMIT)
    server = await make_prosody(
        stanza_bytes_max=LIMIT,
        extra=f'VirtualHost "*"\n  plugin_paths = {{ "{tmp_path}" }}\n'
        'VirtualHost "localhost"\n  modules_enabled = { "announces" }',
    )
    async with device(server, "bob/b") as bob, device(server, "alice/a") as alice:
        with pytest.raises(MessageTooLarge) as caught:
            await alice.qos.submit(alice.message(BOB_B, LARGE))
        assert caught.value.limit == LIMIT
        fits = alice.message(BOB_B, "x" * 15_000)
        async with limit():
            await alice.qos.send(fits)
            await until(lambda: len(bob.arrivals.bodies) == 1)
        assert alice.sessions == 1
