"""Wrong usage of `queue`, refused before it connects; and its help."""

from __future__ import annotations

from pathlib import Path

import pytest

from qos.cli import main
from qos.core.queue.node_options import NODE_FIELDS
from wrong_usage import WIDTH_MAX, refused

SERVICE = ("queue.example.org", "orders")
JID = ("--jid", "a@example.org")

VERBS = (
    *(("create",), ("configure",), ("delete",), ("publish",), ("browse",), ("stats",)),
    *(("purge",), ("affiliate",), ("dead", "list"), ("dead", "requeue")),
)


pytestmark = pytest.mark.usefixtures("environment")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "SERVICE, NODE"),
        (("queue.example.org",), "NODE"),
        (("@", "orders", *JID), "'@' is not a JID"),
        (("queue.example.org", "", *JID), "a queue needs a name"),
        ((*SERVICE, *JID, "--timeout", "0"), "'0' is not a time in seconds"),
        ((*SERVICE, *JID, "--tls", "off"), "example.org is not known as one"),
        ((*SERVICE, *JID, "--store", "sqlite:x"), "--store"),
        ((*SERVICE, *JID, "--trust", "all"), "--trust"),
        ((*SERVICE, *JID, "--fly"), "--fly"),
    ],
)
def test_every_verb_refuses_wrong_usage(
    verb: tuple[str, ...],
    words: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A misunderstood request must not be sent."""
    payload = ("--payload", "<x/>") if verb == ("publish",) and words else ()
    assert said in refused(capsys, "queue", *verb, *words, *payload)


NUMBERS = [field for field in NODE_FIELDS if field.least is not None]


@pytest.mark.parametrize(
    # Both have the same option, and one function that declares it.
    "verb",
    ["create", pytest.param("configure", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("value", ["-1", "1e3", "nan", "text", "1000000000000000"])
@pytest.mark.parametrize("field", NUMBERS, ids=lambda field: field.var)
def test_a_value_out_of_range_is_refused_with_the_range(
    verb: str, field: object, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before it connects: the service would refuse it only later."""
    assert field in NUMBERS
    var = getattr(field, "var")  # noqa: B009 - a Field
    name = var.partition("#")[2]
    for written in (name, var):
        setting = f"{written}={value}"
        line = refused(capsys, "queue", verb, *SERVICE, *JID, "--set", setting)
        assert f"--set: {var} must be a" in line
        assert " from " in line
        assert repr(value) in line


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("lock_timeout=0", "from 0.1 to 604800, not '0'"),
        ("lock_timeout=", "from 0.1 to 604800, not ''"),
        ("lock_timeout=1000000000", "from 0.1 to 604800, not '1000000000'"),
        ("max_deliveries=0", "a whole number from 1 to 1000000, not '0'"),
        ("max_deliveries=1.5", "a whole number from 1 to 1000000, not '1.5'"),
        ("max_items=0", "or empty, not '0'"),
        ("ttl=0", "from 0.001 to 315360000, or empty, not '0'"),
        ("access_model=roster", "must be whitelist or open, not 'roster'"),
        ("pubsub#access_model=roster", "must be whitelist or open, not 'roster'"),
        ("publish_model=subscribers", "must be publishers or open"),
    ],
)
def test_a_bad_setting_names_the_field_and_its_limits(
    setting: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that the next attempt succeeds."""
    line = refused(capsys, "queue", "create", *SERVICE, *JID, "--set", setting)
    assert said in line


@pytest.mark.parametrize("verb", [*VERBS, ("serve",), ("dead",)])
def test_help_has_an_example(
    verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody should need the README to begin."""
    assert main(["queue", *verb, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert f"xmpp-qos queue {' '.join(verb)}" in out.split("example", 1)[1]
    assert max(map(len, out.splitlines())) <= WIDTH_MAX


@pytest.mark.parametrize("door", ["AMQP", "HTTP"])
def test_help_writes_the_name_of_a_protocol_as_everybody_does(
    door: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said "a user of the http gateway"."""
    assert main(["queue", f"{door.lower()}-user", "--help"]) == 0
    assert f"\nWrite a user of the {door} gateway" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["create", "configure"])
def test_help_lists_every_field_that_can_be_set(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the name under which --set takes it, with its default."""
    assert main(["queue", verb, "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for field in NODE_FIELDS:
        assert f" {field.var.partition('#')[2]}: {field.label}" in out
        assert not field.default or f"(default: {field.default})" in out


def test_the_config_file_of_the_other_commands_does_for_the_verbs_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`dead list` has two words before its options, and does not need a store."""
    (tmp_path / "c.toml").write_text(
        'jid = "a@b@c"\nstore = "sqlite:x.db"\ntrust = "all"\ndeadline = 7\n'
    )
    for verb in VERBS:
        words = ("queue", *verb, *SERVICE, "--config", "c.toml")
        line = refused(capsys, *words)
        assert "c.toml: argument --jid: 'a@b@c' is not a JID" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("anyone=member",), "'anyone' is no account, such as bee@example.org"),
        (("bee=member",), "'bee' is no account"),
        (("contacts=publisher",), "access_model=open opens a queue to everybody"),
        (("@=member",), "'@' is neither an account"),
        (("@bee@example.org=member",), "'@bee@example.org' is neither an account"),
        (("bee@example.org/1=member",), "is neither an account (bee@example.org)"),
    ],
)
def test_an_affiliation_is_that_of_an_account(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The words of `--trust` and `--creators` were taken, and matched nobody."""
    assert said in refused(capsys, "queue", "affiliate", *SERVICE, *JID, *words)
