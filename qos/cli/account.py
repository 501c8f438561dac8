"""The account and the store that the options of a command name."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import quote

from qos.cli.folders import NO_HOME, xdg_folder
from qos.errors import StoreError, UsageError
from qos.options.login import backoff_from, login_from, password_from
from qos.private import make_private
from qos.stream.server import PORT_COMPONENT, Component, Login, is_loopback

__all__ = [
    "Account",
    "account_from",
    "component_from",
    "store_url",
]


#: The server of a component usually runs on the same machine.
_COMPONENT_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Account(Login):
    """The account of a command for messages: its login and its QoS options.

    Attributes:
        plugin: the options of xep_qos.
    """

    plugin: dict[str, Any]


def account_from(arguments: argparse.Namespace) -> Account:
    """Check the options of a command for messages, and read the password.

    Raises:
        UsageError: the options contradict each other, or there is no password.
    """
    login = login_from(arguments)
    return Account(
        **{field.name: getattr(login, field.name) for field in fields(login)},
        plugin={
            "store": store_url(arguments, create=True),
            "retry_first_s": login.backoff.first_s,
            "retry_max_s": login.backoff.max_s,
            "deadline_s": arguments.deadline,
            "ordered": arguments.ordered,
            "namespaces": arguments.namespaces,
            "trust": _trust_from(arguments),
            "accepts": arguments.accepts,
            "quota_messages": arguments.quota_messages,
            "quota_bytes": arguments.quota_bytes,
            "quota_total_messages": arguments.quota_total_messages,
            "quota_total_bytes": arguments.quota_total_bytes,
            "quota_domain_messages": arguments.quota_domain_messages,
            "quota_domain_bytes": arguments.quota_domain_bytes,
            "journal": arguments.journal,
        },
    )


def _trust_from(arguments: argparse.Namespace) -> str:
    """The senders of --trust beside the contacts; see TrustPolicy.parse."""
    trust: str = arguments.trust or ""
    words = [word.strip() for word in trust.split(",")]
    if "nobody" in words:
        raise UsageError("--trust nobody: say --no-contacts, and no --trust")
    if words == ["anyone"]:
        return "anyone"
    if arguments.trust is None:
        return "contacts" if arguments.contacts else "nobody"
    return f"contacts,{trust}" if arguments.contacts and any(words) else trust


def component_from(arguments: argparse.Namespace) -> Component:
    """Check the options of a component, and read its secret.

    Raises:
        UsageError: the options contradict each other, or there is no secret.
    """
    host = arguments.host or _COMPONENT_HOST
    if not arguments.insecure and not is_loopback(host):
        raise UsageError(
            "a component's stream is not encrypted: it is for a loopback address "
            f"only, and {host} is not known as one (or say --insecure)"
        )
    return Component(
        jid=arguments.component,
        secret=password_from(arguments.password_file),
        host=host.strip("[]"),
        port=arguments.port or PORT_COMPONENT,
        connect_timeout_s=arguments.connect_timeout,
        backoff=backoff_from(arguments),
    )


def store_url(
    arguments: argparse.Namespace,
    *,
    create: bool = False,
    jid: str | None = None,
    suffix: str = ".sqlite",
) -> str:
    """The URL of the store: --store, or the default store of a JID.

    Args:
        arguments: with --store, and with --jid unless the JID is given.
        create: create the folder of the default store, if it is missing.
        jid: the owner of the default store; None: that of --jid.
        suffix: of the file name of the default store.

    Raises:
        UsageError: neither --store nor a JID is given, or there is no home folder.
        StoreError: the folder cannot be created.
    """
    if arguments.store is not None:
        return str(arguments.store)
    jid = jid or arguments.jid
    if jid is None:
        raise UsageError("--store is needed, or --jid to find the store of an account")
    # Each JID as given, resource included, has a store of its own: two processes can be
    # logged in to one account, but they cannot share a store.
    folder = xdg_folder("XDG_STATE_HOME", ".local/state")
    if folder is None:
        raise UsageError(f"{NO_HOME}: give --store, such as --store sqlite:PATH")
    url = f"sqlite:{folder / quote(jid, safe='@ ')}{suffix}"
    if create:
        try:
            make_private(folder)
        except OSError as error:
            text = f"{error.strerror} ({folder})"
            raise StoreError(url, text) from None
    return url
