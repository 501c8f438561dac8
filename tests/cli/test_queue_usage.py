"""Wrong usage of `queue`, refused before it connects; and its help."""

from __future__ import annotations

from pathlib import Path

import pytest

from qos.cli import main
from qos.core.queue.node_options import NODE_FIELDS
from wrong_usage import WIDTH_MAX, refused

SERVICE = ("queue.example.org", "orders")
JID = ("--jid", "a@example.org")

PUBLISH = ("publish", *SERVICE, *JID, "--payload", "<x/>")

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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "VERB"),
        (("burn",), "'burn'"),
        (("dead",), "VERB"),
        (("dead", "burn"), "'burn'"),
        (("stats", *SERVICE), "--jid is needed"),
        (("stats", *SERVICE, "more", *JID), "more"),
        (("create", *SERVICE, *JID, "--set", "ttl"), "'ttl' has no ="),
        (("create", *SERVICE, *JID, "--set", "colour=red"), "no field 'colour'"),
        (("create", *SERVICE, *JID, "--set", "=1"), "no field ''"),
        (("create", *SERVICE, *JID, "--from", " "), "a topic needs a name"),
        (("create", *SERVICE, *JID, "--topic", "--from", "t"), "not allowed with"),
        (("configure", *SERVICE, *JID, "--topic"), "--topic"),
        (
            ("configure", *SERVICE, *JID, "--set", "ttl=0"),
            "315360000, or empty, not '0'",
        ),
        ((*PUBLISH, "--property", "red"), "'red' is not NAME=VALUE"),
        ((*PUBLISH, "--property", "=red"), "'=red' is not NAME=VALUE"),
        ((*PUBLISH, "--property", "n:int=red"), "'red' is no int"),
        ((*PUBLISH, "--property", "n:int=2.5"), "'2.5' is no int"),
        ((*PUBLISH, "--property", "n:boolean=1"), "'1' is no boolean"),
        ((*PUBLISH, "--property", "xml.a=1"), "names with xml. are read"),
        ((*PUBLISH, "--property", "n=9223372036854775808"), "more than 64 bits"),
        (("affiliate", *SERVICE, *JID, "b@example.org"), "does not end in ="),
        (("affiliate", *SERVICE, *JID, "b@example.org=king"), "owner, publisher"),
        (("affiliate", *SERVICE, *JID, "b@example.org/1=owner"), "not a bare JID"),
        (("affiliate", *SERVICE, *JID, "@=owner"), "'@' is not a JID"),
        (("browse", *SERVICE, *JID, "--max", "0"), "'0' is not a number of items"),
        (("browse", *SERVICE, *JID, "--max", "all"), "'all' is not a number"),
        (("browse", *SERVICE, *JID, "--state", "ill"), "'ill'"),
        (("dead", "list", *SERVICE, *JID, "--state", "live"), "--state"),
        (
            ("publish", *SERVICE, *JID),
            "one of --json, --text, --payload, --file and --lines is needed",
        ),
        (("publish", *SERVICE, *JID, "--payload", "<a>"), "--payload: not well-"),
        (("publish", *SERVICE, *JID, "--payload", ""), "--payload: not well-formed"),
        (("publish", *SERVICE, *JID, "--payload", "<a/><b/>"), "not well-formed"),
        (("publish", *SERVICE, *JID, "--file", "no.xml"), "no.xml: No such file"),
        (("publish", *SERVICE, *JID, "--payload", "<a/>", "--lines"), "--lines"),
        (("publish", *SERVICE, *JID, "--lines", "--id", "x"), "--id is for one item"),
        (
            ("publish", *SERVICE, *JID, "--payload", "<a/>", "--priority", "10"),
            "--priority",
        ),
        (
            ("publish", *SERVICE, *JID, "--payload", "<a/>", "--priority", "high"),
            "--priority",
        ),
        (("publish", *SERVICE, *JID, "--payload", "<a/>", "--ttl", "0"), "'0' is not"),
        (
            ("publish", *SERVICE, *JID, "--payload", "<a/>", "--delay", "-1"),
            "'-1' is not a time",
        ),
        (
            ("publish", *SERVICE, *JID, "--payload", "<a/>", "--deadline", "x"),
            "'x' is not a time",
        ),
        (("serve",), "--component or --jid is needed"),
        (("serve", *JID, "--component", "q.example.org"), "only one of them"),
        (("serve", "--component", "a@example.org"), "not a component's JID"),
        (("serve", "--component", "q.example.org/1"), "not a component's JID"),
        (("serve", *JID, "--tls", "off"), "example.org is not known as one"),
        (("serve", *JID, "--creators", ","), "names nobody"),
        (("serve", *JID, "--creators", "a@b@c"), "'a@b@c' is not a JID"),
        (("serve", *JID, "--creators", "nobody"), "'nobody' is neither an account"),
        (("serve", *JID, "--creators", "a@b,@"), "'' is not a JID"),
        (("serve", *JID, "--nodes-per-account", "0"), "'0' is not a whole number"),
        (("serve", *JID, "--quota-domain-bytes", "x"), "'x' is not a whole number"),
        (("serve", *JID, "--store", "files:x"), "in sqlite:PATH only"),
        (("serve", *JID, "--store", "memory:"), "in sqlite:PATH only"),
        (("serve", *JID, "--store", "sqlite:"), "--store sqlite:"),
        (
            ("serve", "--component", "q.example.org", "--host", "192.0.2.1"),
            "192.0.2.1 is not known as one (or say --insecure)",
        ),
        (("serve", "--component", "q.example.org", "--port", "0"), "'0' is not a port"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No store is created either."""
    assert said in refused(capsys, "queue", *words)
    assert not Path("state").exists() or not any(Path("state").rglob("*sqlite*"))


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
