"""The verification string of a disco#info (XEP-0115 §5), and when there is none.

The string joins all parts with `<`, so different lists can have the same string: a part
that contains `<` reads as two, and the fields of a form read as features. What a string
says is therefore believed of the account alone that has sent the list.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Final

from qos.core.record import record

__all__ = ["HASHES", "DiscoForm", "DiscoInfo", "verification"]

#: The hashes of verification strings that are known, by their names in XEP-0300.
HASHES: Final = {"sha-1": "sha1", "sha-256": "sha256", "sha-512": "sha512"}

_FORM_TYPE: Final = "FORM_TYPE"


@record(frozen=True, slots=True)
class DiscoForm:
    """A form of extended information (XEP-0128).

    Attributes:
        types: the values of its field FORM_TYPE; empty: it has none.
        hidden: whether this field is of the type `hidden`.
        fields: the name and the values of each other field.
    """

    types: tuple[str, ...]
    hidden: bool
    fields: tuple[tuple[str, tuple[str, ...]], ...]


@record(frozen=True, slots=True)
class DiscoInfo:
    """What an entity has said about itself.

    Attributes:
        identities: category, type, language and name of each.
        features: their names.
        forms: the extended information.
    """

    identities: tuple[tuple[str, str, str, str], ...]
    features: tuple[str, ...]
    forms: tuple[DiscoForm, ...] = ()


def verification(info: DiscoInfo, algorithm: str) -> str | None:
    """The verification string of this information.

    Returns:
        None: the information is ill-formed (XEP-0115 §5.4), or a part of it contains `<`,
            or the hash is not known.
    """
    if algorithm not in HASHES:
        return None
    # XEP-0115 §5.4, step 3.5: a form without a hidden FORM_TYPE is ignored.
    forms = [form for form in info.forms if form.types and form.hidden]
    one_type_each = all(len(set(form.types)) == 1 for form in forms)
    if not one_type_each or _has_twice([form.types[0] for form in forms]):
        return None
    identities = ["/".join(identity) for identity in info.identities]
    if _has_twice(info.identities) or _has_twice(info.features):
        return None
    parts = sorted(identities) + sorted(info.features)
    for form in sorted(forms, key=lambda form: form.types[0]):
        parts.append(form.types[0])
        for name, values in sorted(form.fields):
            parts += [name, *sorted(values)]
    if any("<" in part for part in parts):
        return None
    digest = hashlib.new(HASHES[algorithm], usedforsecurity=False)
    digest.update("".join(f"{part}<" for part in parts).encode())
    return base64.b64encode(digest.digest()).decode()


def _has_twice(values: Sequence[object]) -> bool:
    return len(set(values)) != len(values)
