"""The records of push subscribers."""

from qos.core.queue.push import PushSubscriber


def test_a_subscriber_has_a_full_jid_of_its_own() -> None:
    """Of its account, so that it can do no more than that."""
    subscriber = PushSubscriber(
        subscriber_id="id",
        node="orders",
        account="alice@example.org",
        rel="post-message",
        href="https://example.org/in",
        base="",
        created_at=0.0,
    )
    assert subscriber.jid == "alice@example.org/http-push-id"
