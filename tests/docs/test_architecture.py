"""The page *Architecture* names parts that exist, in the order in which they import."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "architecture.md").read_text("utf-8")

#: Where a file is that the page names without its folder.
FOLDERS = ("plugins/xep_qos", "qos/core/message", "qos/core/queue", "qos/stream")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([\w/]+\.py)`", PAGE))))
def test_a_file_that_is_named_exists(name: str) -> None:
    assert any((TOP / folder / name).is_file() for folder in ("", *FOLDERS))


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"`?((?:qos|plugins)/\w+)\b", PAGE)))
)
def test_a_folder_that_is_named_exists(name: str) -> None:
    assert (TOP / name).is_dir()


def test_the_parts_stand_above_those_that_they_import() -> None:
    """In the picture, from top to bottom, as the check of imports has them."""
    picture = PAGE.split("```")[1]
    table = tomllib.loads((TOP / "pyproject.toml").read_text("utf-8"))
    layers = table["tool"]["importlinter"]["contracts"][0]["layers"]
    depth = {
        name.strip(): number
        for number, layer in enumerate(layers)
        for name in layer.split("|")
    }
    for above, below in (
        ("qos.cli", "qos.client"),
        ("qos.client", "xep_0254"),
        ("xep_0254", "xep_qos"),
        ("xep_qos", "qos.stream"),
        ("qos.stream", "qos.engine"),
        ("qos.engine", "qos.stores"),
        ("qos.engine", "qos.core"),
    ):
        assert depth[above] < depth[below]
        shown = [picture.index(each.replace(".", "/")) for each in (above, below)]
        assert shown == sorted(shown) or {above, below} <= {"xep_0254", "xep_qos"}


@pytest.mark.parametrize("name", re.findall(r"`([A-Z]\w+[a-z]\.\w+)`", PAGE))
def test_a_method_that_is_named_exists(name: str) -> None:
    kind, method = name.split(".")
    sources = "\n".join(
        path.read_text("utf-8")
        for folder in ("qos", "plugins")
        for path in (TOP / folder).rglob("*.py")
        if f"class {kind}" in path.read_text("utf-8")
    )
    assert re.search(rf"class {kind}\b", sources)
    assert re.search(rf"def {method}\b", sources)
