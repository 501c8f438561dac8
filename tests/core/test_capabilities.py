"""The verification string of XEP-0115, and the lists that have none."""

from __future__ import annotations

import pytest

from qos.core.capabilities import DiscoForm, DiscoInfo, verification

EXODUS = DiscoInfo(
    (("client", "pc", "", "Exodus 0.9.1"),),
    (
        "http://jabber.org/protocol/disco#info",
        "http://jabber.org/protocol/disco#items",
        "http://jabber.org/protocol/muc",
        "http://jabber.org/protocol/caps",
    ),
)
SOFTWARE = DiscoForm(
    ("urn:xmpp:dataforms:softwareinfo",),
    True,
    (
        ("software", ("Psi",)),
        ("ip_version", ("ipv6", "ipv4")),
        ("os", ("Mac",)),
        ("os_version", ("10.5.1",)),
        ("software_version", ("0.11",)),
    ),
)
PSI = DiscoInfo(
    (("client", "pc", "el", "Ψ 0.11"), ("client", "pc", "en", "Psi 0.11")),
    EXODUS.features,
    (SOFTWARE,),
)


def test_the_examples_of_the_specification_have_their_strings() -> None:
    """XEP-0115 §5.2 and §5.3."""
    assert verification(EXODUS, "sha-1") == "QgayPKawpkPSDYmwT/WM94uAlu0="
    assert verification(PSI, "sha-1") == "q07IKJEyjvHSyhy//CH0CxmKi8w="


def test_a_hash_that_is_not_known_has_no_string() -> None:
    """Nobody can check it."""
    assert verification(EXODUS, "md5") is None
    assert verification(EXODUS, "sha-256") not in {None, verification(EXODUS, "sha-1")}


def info(
    *,
    identities: tuple[tuple[str, str, str, str], ...] = EXODUS.identities,
    features: tuple[str, ...] = EXODUS.features,
    forms: tuple[DiscoForm, ...] = (),
) -> DiscoInfo:
    return DiscoInfo(identities, features, forms)


@pytest.mark.parametrize(
    "ill_formed",
    [
        info(identities=EXODUS.identities * 2),
        info(features=EXODUS.features * 2),
        info(forms=(SOFTWARE, SOFTWARE)),
        info(forms=(DiscoForm(("urn:a", "urn:b"), True, ()),)),
        info(identities=(("client", "pc", "", "Exodus<urn:a"),)),
        info(features=("urn:a<urn:b",)),
        info(forms=(DiscoForm(("urn:a",), True, (("os<x", ()),)),)),
    ],
    ids=["identity", "feature", "form", "type", "in name", "in feature", "in field"],
)
def test_an_ill_formed_list_has_no_string(ill_formed: DiscoInfo) -> None:
    """XEP-0115 §5.4, steps 3.1 to 3.4; and with a `<` two lists have the same string."""
    assert verification(ill_formed, "sha-1") is None


def test_a_form_without_a_hidden_type_is_ignored() -> None:
    """XEP-0115 §5.4, step 3.5."""
    forms = (DiscoForm((), False, ()), DiscoForm(("urn:a",), False, ()))
    assert verification(info(forms=forms), "sha-1") == verification(EXODUS, "sha-1")
    twice = (DiscoForm(("urn:a", "urn:a"), True, ()),)
    assert verification(info(forms=twice), "sha-1") is not None
