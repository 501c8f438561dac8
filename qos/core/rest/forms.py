"""Forms of HTTP: `application/x-www-form-urlencoded` with known fields."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl

__all__ = ["OtherFields", "read_fields"]


class OtherFields(ValueError):
    """A form has an unknown field, or one twice."""


def read_fields(form: str, names: Collection[str]) -> dict[str, str]:
    """The fields of a form, each at most once.

    Raises:
        OtherFields: see there.
        ValueError: it is no form.
    """
    pairs = parse_qsl(
        form,
        keep_blank_values=True,
        strict_parsing=True,
        max_num_fields=len(names),
        errors="strict",
    )
    fields = dict(pairs)
    if fields.keys() - set(names) or len(fields) < len(pairs):
        raise OtherFields
    return fields
