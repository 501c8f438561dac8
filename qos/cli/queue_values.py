"""The kinds of values that `xmpp-qos queue` takes, each checked when it is read."""

from __future__ import annotations

import argparse
import json
import textwrap

from qos.core.queue.item import Affiliation
from qos.core.queue.node_options import NODE_FIELDS, TOPIC, BadOption, Field
from qos.core.queue.properties import Value, why_not
from qos.core.queue.selector import SelectorError, parse
from qos.core.rest.hornetq.names import check_header
from qos.core.rest.origins import read_base
from qos.options.parser import jid

__all__ = [
    "account",
    "affiliation",
    "base",
    "creators",
    "described",
    "domain",
    "host_and_port",
    "lines",
    "node",
    "positive",
    "property_",
    "rate",
    "selector",
    "setting",
    "short",
    "topic",
]


_PORT_MAX = 65535


def host_and_port(text: str) -> tuple[str, int]:
    """HOST:PORT, an address to listen at; port 0 is any free one."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not HOST:PORT, such as 127.0.0.1:5672"
        )
    return host, int(port)


def account(text: str) -> str:
    """An account: a bare JID with a user."""
    address = jid(text)
    if "@" not in address or "/" in address:
        raise argparse.ArgumentTypeError(f"{text!r} is not an account (a@example.org)")
    return address


def short(field: Field) -> str:
    """The name of a field without its prefix."""
    return field.var.partition("#")[2]


def described(field: Field, *, width: int) -> str:
    """The name of a field, its meaning and its default, in indented lines."""
    default = f" (default: {field.default})" if field.default else ""
    return textwrap.fill(
        f"{short(field)}: {field.label}{default}",
        width,
        initial_indent="  ",
        subsequent_indent="    ",
    )


def setting(text: str) -> tuple[str, str]:
    """FIELD=VALUE: the full name of the field, and the value."""
    name, equals, value = text.partition("=")
    matches = [field for field in NODE_FIELDS if name in {field.var, short(field)}]
    if not equals or not matches:
        names = ", ".join(map(short, NODE_FIELDS))
        problem = f"there is no field {name!r}" if equals else f"{text!r} has no ="
        raise argparse.ArgumentTypeError(f"{problem}; the fields are {names}")
    try:
        return matches[0].var, matches[0].check(value)
    except BadOption as error:
        raise argparse.ArgumentTypeError(str(error)) from None


_TYPES = {"string": str, "int": int, "float": float, "boolean": bool}


def property_(text: str) -> tuple[str, Value]:
    """NAME=VALUE or NAME:TYPE=VALUE: a property of an item."""
    name, equals, value_text = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    bare, _, word = name.rpartition(":")
    value: Value = _json_value(value_text)
    if bare and word in _TYPES:
        name, kind = bare, _TYPES[word]
        if kind is str:
            value = value_text
        elif kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise argparse.ArgumentTypeError(f"{text!r}: {value_text!r} is no {word}")
    problem = why_not({name: value})
    if problem is not None:
        raise argparse.ArgumentTypeError(problem)
    return name, value


def _json_value(text: str) -> Value:
    """A number or a boolean as JSON writes it; any other text is itself."""
    try:
        value = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, int | float) else text


def selector(text: str) -> str:
    """A selector."""
    try:
        return parse(text).text if text.strip() else ""
    except SelectorError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def affiliation(text: str) -> tuple[str, Affiliation]:
    """JID=AFFILIATION, of a bare JID, or of a domain for all its accounts."""
    name, _, word = text.rpartition("=")
    try:
        affiliation = Affiliation(word)
    except ValueError:
        words = ", ".join(choice.value for choice in Affiliation)
        raise argparse.ArgumentTypeError(
            f"{text!r} does not end in = and one of {words}"
        ) from None
    of_domain = name.startswith("@")
    account = name if name == "@" else jid(name[of_domain:])
    if "/" in account or (of_domain and "@" in account):
        raise argparse.ArgumentTypeError(
            f"{name!r} is neither an account (bee@example.org) nor all accounts of a "
            "domain (@example.org)"
        )
    if "@" not in account and "." not in account:
        raise argparse.ArgumentTypeError(
            f"{name!r} is no account, such as bee@example.org; access_model=open opens a "
            "queue to everybody (queue configure)"
        )
    return account, affiliation


def creators(text: str) -> str | frozenset[str]:
    """The accounts that may create queues: anyone, domain, or accounts and @domains."""
    if text in {"anyone", "domain"}:
        return text
    if text == "all":
        raise argparse.ArgumentTypeError("'all' is 'anyone' now")
    from qos.jids import account_or_domain

    names = [name for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r} names nobody")
    try:
        return frozenset(map(account_or_domain, names))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def domain(text: str) -> str:
    """The JID of a component."""
    name = jid(text)
    if "@" in name or "/" in name:
        raise argparse.ArgumentTypeError(f"{text!r} is not a component's JID")
    return name


def node(text: str) -> str:
    """The name of a queue."""
    if not text:
        raise argparse.ArgumentTypeError("a queue needs a name")
    return text


def topic(text: str) -> tuple[str, str]:
    """The name of a topic, as the field that names it."""
    if not text.strip():
        raise argparse.ArgumentTypeError("a topic needs a name")
    return TOPIC, text


def lines(text: str) -> int:
    """A number of lines, at least one."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines")
    return int(text)


def positive(text: str) -> int:
    """A number of items, at least one."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of items")
    return int(text)


def rate(text: str) -> int:
    """A number of something a second; 0: no limit."""
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def base(text: str) -> str:
    """The URL that links begin with."""
    try:
        return read_base(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def property_header(text: str) -> str:
    """A header that becomes a property."""
    try:
        return check_header(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
