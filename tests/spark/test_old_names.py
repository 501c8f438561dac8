"""Names of earlier documentation: they work for one release, and print the new name."""

import importlib
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.mark.parametrize(
    ("old", "name", "new"),
    [
        ("snapshot", "snapshot", "qos.audit.snapshot"),
        ("snapshot", "spark_frame", "qos.audit.snapshot"),
        ("session", "spark_session", "qos.spark.session"),
        ("session", "check_spark", "qos.spark.session"),
        ("xmpp_formats", "register", "qos.spark.formats"),
        ("tables", "deliveries", "qos.audit.tables"),
        ("tables", "Limits", "qos.audit.tables"),
        ("tables", "readings", "qos.spark.readings"),
        ("tables", "unreadable", "qos.spark.readings"),
    ],
)
def test_a_name_of_before_is_the_same_thing(old: str, name: str, new: str) -> None:
    """A user who upgrades gets a hint, and nothing breaks."""
    sys.modules.pop(f"qos.pipeline.{old}", None)
    with pytest.warns(DeprecationWarning, match=new):
        module = importlib.import_module(f"qos.pipeline.{old}")
    assert getattr(module, name) is getattr(importlib.import_module(new), name)
