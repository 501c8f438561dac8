"""Wrong usage of each command, refused before anything is done.

A row: the words, and a part of the one line that is printed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from wrong_usage import refused

JID = ("--jid", "a@example.org")
TO = "b@example.org/1"
QUEUES = "queue.example.org"
QUEUE = (QUEUES, "orders")
PUBLISH = ("publish", *QUEUE, *JID, "--payload", "<x/>")
FOLLOW = ("audit", "full", "--out", "o", "--follow")

MESSAGES = [
    ((), "COMMAND"),
    (("fly",), "'fly'"),
    (("--fly",), "COMMAND"),
    (("send",), "TO"),
    (("send", TO, *JID), "one of --body, --json, --xml or --lines"),
    (("send", TO, *JID, "--json", "{"), "--json: Expecting property name"),
    (("send", TO, *JID, "--json", "NaN"), "--json: json must be a value"),
    (("send", TO, "--body", "x"), "--jid is needed"),
    (("send", TO, "--body", "x", "--jid", "example.org"), "user@domain"),
    (("send", TO, "--body", "x", "--jid", "a@b@c"), "'a@b@c' is not a JID"),
    (("send", "@", "--body", "x", *JID), "'@' is not a JID"),
    (("send", TO, "--body", "x", "--lines", *JID), "--lines"),
    (("send", TO, "--body", "x", "--level", "sure", *JID), "'sure'"),
    (("send", TO, "--body", "a\x00b", *JID), "--body: character U+0000"),
    (("send", TO, "--xml", "no.xml", *JID), "--xml no.xml: No such file"),
    (("send", TO, "--body", "x", "--host"), "--host"),
    (("send", TO, "--bod", "x", *JID), "--bod"),
    (("send", TO, "--lines", "--id", "x", *JID), "--id is for one message"),
    (
        ("send", TO, "--body", "x", "--id", "x", "--level", "unacknowledged", *JID),
        "has no id",
    ),
    (("listen", *JID, "--port", "0"), "'0' is not a port"),
    (("listen", *JID, "--port", "x"), "'x' is not a whole number"),
    (("listen", *JID, "--count", "0"), "'0' is not a number of messages"),
    (("listen", *JID, "--retry-first", "0"), "'0' is not a time in seconds"),
    (("listen", *JID, "--retry-max", "nan"), "'nan' is not a time"),
    (("listen", *JID, "--deadline", "inf"), "'inf' is not a time"),
    (("listen", *JID, "--retry-first", "9", "--retry-max", "3"), "9.0 and 3.0"),
    (("listen", *JID, "--quota-bytes", "-1"), "--quota-bytes"),
    (("listen", *JID, "--quota-total-messages", "many"), "'many'"),
    (("listen", *JID, "--trust", ","), "trust"),
    (("listen", *JID, "--namespaces", "urn:x"), "urn:x"),
    (("listen", *JID, "--namespaces", ","), "namespaces"),
    (("listen", *JID, "--store", "redis:x"), "redis:x"),
    (("listen", *JID, "--tls", "maybe"), "maybe"),
    (("listen", *JID, "--tls", "off"), "example.org is not known as one"),
    (("listen", *JID, "--tls", "off", "--host", "192.0.2.1"), "192.0.2.1"),
    (("listen", *JID, "--ca-file", "no.pem"), "--ca-file no.pem: No such file"),
    (("listen", *JID, "--password-file", "no"), "--password-file no: No such"),
    (("listen", *JID, "--password", "secret"), "--password"),
    (
        (
            "worker",
            "queue.example.org",
            "orders",
            "--selector",
            "n >",
            *JID,
            "true",
        ),
        "--selector: expected a value, found the end (at character 4)",
    ),
    (("outbox",), "ACTION"),
    (("outbox", "burn"), "'burn'"),
    (("outbox", "list"), "--store is needed, or --jid"),
    (("outbox", "list", "--store", "memory:"), "empty at each start"),
    (("outbox", "list", "--store", "file:x"), "file:x"),
    (("outbox", "show", "--store", "sqlite:x"), "ID"),
    (("outbox", "withdraw", "a", "b", "--store", "sqlite:x"), "b"),
    (("outbox", "resend"), "--jid is needed"),
    (("inbox", "drop", "--store", "sqlite:x"), "ID"),
    (("inbox", "show", "x", "--store", "sqlite:x", "--from", "@"), "'@'"),
]

QUEUE_VERBS = [
    ((), "VERB"),
    (("burn",), "'burn'"),
    (("dead",), "VERB"),
    (("dead", "burn"), "'burn'"),
    (("stats", *QUEUE), "--jid is needed"),
    (("stats", *QUEUE, "more", *JID), "more"),
    (("create", *QUEUE, *JID, "--set", "ttl"), "'ttl' has no ="),
    (("create", *QUEUE, *JID, "--set", "colour=red"), "no field 'colour'"),
    (("create", *QUEUE, *JID, "--set", "=1"), "no field ''"),
    (("create", *QUEUE, *JID, "--from", " "), "a topic needs a name"),
    (("create", *QUEUE, *JID, "--topic", "--from", "t"), "not allowed with"),
    (("configure", *QUEUE, *JID, "--topic"), "--topic"),
    (
        ("configure", *QUEUE, *JID, "--set", "ttl=0"),
        "315360000, or empty, not '0'",
    ),
    ((*PUBLISH, "--property", "red"), "'red' is not NAME=VALUE"),
    ((*PUBLISH, "--property", "=red"), "'=red' is not NAME=VALUE"),
    ((*PUBLISH, "--property", "n:int=red"), "'red' is no int"),
    ((*PUBLISH, "--property", "n:int=2.5"), "'2.5' is no int"),
    ((*PUBLISH, "--property", "n:boolean=1"), "'1' is no boolean"),
    ((*PUBLISH, "--property", "xml.a=1"), "names with xml. are read"),
    ((*PUBLISH, "--property", "n=9223372036854775808"), "more than 64 bits"),
    (("affiliate", *QUEUE, *JID, "b@example.org"), "does not end in ="),
    (("affiliate", *QUEUE, *JID, "b@example.org=king"), "owner, publisher"),
    (("affiliate", *QUEUE, *JID, "b@example.org/1=owner"), "is neither an account"),
    (("affiliate", *QUEUE, *JID, "@=owner"), "'@' is neither an account"),
    (("browse", *QUEUE, *JID, "--max", "0"), "'0' is not a number of items"),
    (("browse", *QUEUE, *JID, "--max", "all"), "'all' is not a number"),
    (("browse", *QUEUE, *JID, "--state", "ill"), "'ill'"),
    (("dead", "list", *QUEUE, *JID, "--state", "live"), "--state"),
    (
        ("publish", *QUEUE, *JID),
        "one of --json, --text, --payload, --file and --lines is needed",
    ),
    (("publish", *QUEUE, *JID, "--payload", "<a>"), "--payload: not well-"),
    (("publish", *QUEUE, *JID, "--payload", ""), "--payload: not well-formed"),
    (("publish", *QUEUE, *JID, "--payload", "<a/><b/>"), "not well-formed"),
    (("publish", *QUEUE, *JID, "--file", "no.xml"), "no.xml: No such file"),
    (("publish", *QUEUE, *JID, "--payload", "<a/>", "--lines"), "--lines"),
    (("publish", *QUEUE, *JID, "--lines", "--id", "x"), "--id is for one item"),
    (
        ("publish", *QUEUE, *JID, "--payload", "<a/>", "--priority", "10"),
        "--priority",
    ),
    (
        ("publish", *QUEUE, *JID, "--payload", "<a/>", "--priority", "high"),
        "--priority",
    ),
    (("publish", *QUEUE, *JID, "--payload", "<a/>", "--ttl", "0"), "'0' is not"),
    (
        ("publish", *QUEUE, *JID, "--payload", "<a/>", "--delay", "-1"),
        "'-1' is not a time",
    ),
    (
        ("publish", *QUEUE, *JID, "--payload", "<a/>", "--deadline", "x"),
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
]

WORKER = [
    ((), "SERVICE, NODE, COMMAND"),
    (QUEUE, "COMMAND"),
    ((*QUEUE, "--"), "COMMAND"),
    (("@", "orders", "--", "true"), "'@' is not a JID"),
    ((*QUEUE, "--", "true"), "--jid is needed"),
    ((*QUEUE, "--parallel", "0", "--", "true"), "'0' is not a whole number from"),
    ((*QUEUE, "--parallel", "1001", "--", "true"), "from 1 to 1000"),
    ((*QUEUE, "--parallel", "-1", "--", "true"), "'-1' is not a whole number"),
    ((*QUEUE, "--parallel", "many", "--", "true"), "'many' is not a whole"),
    ((*QUEUE, "--grace", "x", "--", "true"), "'x' is not a time in seconds"),
    ((*QUEUE, "--drain", "0", "--", "true"), "'0' is not a time in seconds"),
    ((*QUEUE, "--fly", "--", "true"), "--fly"),
    (
        (*QUEUE, "--jid", "a@localhost", "--", "no-such-command"),
        "no-such-command",
    ),
    ((*QUEUE, "--jid", "a@localhost", "--", "/etc/passwd"), "/etc/passwd"),
    ((*QUEUE, "--jid", "a@b", "--tls", "off", "--", "true"), "b is not known as"),
]

BENCH = [
    ((), "WHAT"),
    (("speed",), "'speed'"),
    (("messages",), "--jid is needed"),
    (("messages", "--jid", "alice"), "alice"),
    (("messages", "--jid", "a@x", "--to", "x"), "user@domain"),
    (("messages", "--jid", "a@x", "--to-password-file", "f"), "of --to"),
    (("messages", "--jid", "a@x", "--levels", "sure"), "'sure'"),
    (("messages", "--jid", "a@x", "--store", "disk"), "'disk'"),
    (("messages", "--jid", "a@x", "--windows", "0"), "from 1 to 4096"),
    (("messages", "--jid", "a@x", "--size", "many"), "'many'"),
    (("messages", "--jid", "a@x", "--seconds", "0"), "'0' is not a time"),
    (("queue", "--jid", "a@x"), "SERVICE"),
    (("queue", QUEUES), "--jid is needed"),
    (("queue", QUEUES, "--jid", "a@x", "--workers", "101"), "from 1 to 100"),
    (("queue", QUEUES, "--jid", "a@x", "--levels", "assured"), "--levels"),
]

AUDIT = [
    (("audit",), "JOURNAL"),
    (("audit", "full"), "--out"),
    (("audit", "--out", "o"), "JOURNAL"),
    (("audit", "nowhere", "--out", "o"), "nowhere: there is no such folder"),
    (
        ("audit", "nowhere", "a@x=other", "--out", "o"),
        "nowhere: there is no such folder; other: no journal: there is no date=",
    ),
    (("audit", "full", "", "--out", "o"), ": there is no such folder"),
    (("audit", "file", "--out", "o"), "file: there is no such folder"),
    (("audit", "other", "--out", "o"), "no date=… folder in it"),
    (("audit", "", "--out", "o"), ": there is no such folder"),
    (("audit", "full", "--out", "file"), "--out file: it is a file, and no folder"),
    (
        ("audit", "lamp@x/1=nowhere", "--out", "o"),
        "nowhere: there is no such folder",
    ),
    (("audit", "@@x=full", "--out", "o"), "@@x=full: '@@x' is no JID"),
    (("audit", "=full", "--out", "o"), "=full: '' is no JID"),
    (
        ("audit", "a@x=full", "full", "--out", "o"),
        "given twice, not as of the same",
    ),
    (("audit", "a@x=full", "b@x=full", "--out", "o"), "full is given twice"),
    (("audit", "full", "--out", ""), "--out: which folder?"),
    (("audit", "full", "--out", "file/o"), "--out file/o: "),
    (("audit", "full", "--out", "o", "--from", "today"), "'today' is not a date"),
    (
        (
            "audit",
            "full",
            "--out",
            "o",
            "--from",
            "2026-01-06",
            "--to",
            "2026-01-05",
        ),
        "--from 2026-01-06 is after --to 2026-01-05",
    ),
    (("audit", "full", "--out", "o", "--stuck-after", "0"), "'0' is not a time"),
    (("audit", "full", "--out", "o", "--skew", "x"), "'x' is not a time"),
    (("audit", "full", "--out", "o", "--once"), "--once is of --follow only"),
    (("audit", "full", "--out", "o", "--every", "5"), "--every is of --follow"),
    (("audit", "full", "--out", "o", "--late", "5"), "--late is of --follow only"),
    ((*FOLLOW, "--late", "0"), "'0' is not a number of days"),
    ((*FOLLOW, "--from", "2026-01-06"), "--follow has no --from and --to"),
    ((*FOLLOW, "--once", "--every", "5"), "--once or --every"),
    ((*FOLLOW, "--stuck-after", "86400", "--late", "1"), "make --late longer"),
]

DEMO = [
    (("--messages", "29"), "'29' is not a whole number from 30 to 1000"),
    (("--messages", "many"), "'many' is not a whole number"),
    (("--seed", "-1"), "'-1' is not a whole number"),
    (("--loss", "51"), "'51' is not a whole number from 0 to 50"),
    (("--loss", "0.05"), "'0.05' is not a whole number"),
    (("--kills", "11"), "'11' is not a whole number from 0 to 10"),
    (("--only", "queues"), "'queues'"),
    (("--out", "full"), "--out full: there is something in it"),
    (("--out", "file"), "--out file: File exists"),
    (("--out", "file/demo"), "--out file/demo: Not a directory"),
    (("--items", "30"), "--items"),
    (("now",), "now"),
]

ROWS = [
    *MESSAGES,
    *((("queue", *words), said) for words, said in QUEUE_VERBS),
    *((("worker", *words), said) for words, said in WORKER),
    *((("bench", *words), said) for words, said in BENCH),
    *((("demo", *words), said) for words, said in DEMO),
    *AUDIT,
]


@pytest.mark.parametrize(("words", "said"), ROWS)
def test_wrong_usage_is_one_line_and_status_2(
    words: tuple[str, ...],
    said: str,
    environment: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A misunderstood command does nothing: no file, no store, no Spark.

    A command that a worker is to run and that is missing is reported before any item is
    taken for it.
    """
    (tmp_path / "full" / "date=2026-01-05").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "file").write_text("x")
    assert said in refused(capsys, *words)
    # The folder of the stores may be there, and nothing is in it.
    files = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert files == ["file"]
