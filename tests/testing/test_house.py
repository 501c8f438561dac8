"""The figures of the house are those of its code; names that say nothing do not grow."""

import ast
from itertools import pairwise

import pytest

from house import (
    SHIPPED,
    TOP,
    Figures,
    Names,
    figures,
    names_by_package,
    package_of,
    sources,
    vague_names,
)

#: A package is finished if at most this share of its local names says nothing: one name
#: in two hundred is that of a public parameter, or the `other` of an operator.
FINISHED = 0.005

#: The most that a package may have. Where it is not FINISHED yet, it is the share of the
#: day on which the package was counted; it may only become less.
SHARE_MAX = {
    "plugins/xep_0254": FINISHED,
    "plugins/xep_0337": FINISHED,
    "plugins/xep_qos": FINISHED,
    "qos": FINISHED,
    "qos/amqp": FINISHED,
    "qos/audit": FINISHED,
    "qos/bench": FINISHED,
    "qos/bridge": FINISHED,
    "qos/cli": FINISHED,
    "qos/client": FINISHED,
    "qos/core": FINISHED,
    "qos/core/amqp": FINISHED,
    "qos/core/message": FINISHED,
    "qos/core/queue": FINISHED,
    "qos/core/rest": FINISHED,
    "qos/demo": FINISHED,
    "qos/engine": FINISHED,
    "qos/journal": FINISHED,
    "qos/options": FINISHED,
    "qos/rest": FINISHED,
    "qos/spark": FINISHED,
    "qos/stores": FINISHED,
    "qos/stream": FINISHED,
    "qos/testing": FINISHED,
    "qos/worker": FINISHED,
}

#: The most of all packages together.
TOTAL_MAX = 0.002


@pytest.fixture(scope="module")
def house() -> Figures:
    return figures()


@pytest.fixture(scope="module")
def packages() -> dict[str, Names]:
    return names_by_package()


def test_names_that_say_nothing_are_found() -> None:
    source = """
def told(it, of):
    kept = of
    item, asked = it
    for each in item:
        number = 1
    self.found = number
"""
    assert vague_names(source) == {"it", "kept", "asked", "each"}


def test_the_table_counts_what_is_shipped(house: Figures) -> None:
    assert SHIPPED == ("qos", "plugins")
    assert house.files > 100
    assert house.lines > 10_000
    assert 0 < house.vague.total() < house.names


def test_a_file_belongs_to_one_package() -> None:
    assert package_of("qos/ids.py") == "qos"
    assert package_of("qos/audit/tables/items.py") == "qos/audit"
    assert package_of("qos/core/backoff.py") == "qos/core"
    assert package_of("qos/core/queue/selector/like.py") == "qos/core/queue"
    assert package_of("plugins/xep_qos/plugin.py") == "plugins/xep_qos"


def test_each_name_of_the_house_is_in_one_package(
    house: Figures, packages: dict[str, Names]
) -> None:
    assert sum(names.total for names in packages.values()) == house.names
    assert sum(len(names.vague) for names in packages.values()) == house.vague.total()


def test_each_package_has_its_bound(packages: dict[str, Names]) -> None:
    """A new package begins as FINISHED."""
    assert {name for name, names in packages.items() if names.total} == set(SHARE_MAX)


@pytest.mark.parametrize("package", sorted(SHARE_MAX))
def test_no_package_has_more_names_that_say_nothing(
    packages: dict[str, Names], package: str
) -> None:
    """A newcomer learns from a name what it stands for."""
    names = packages[package]
    assert names.share <= SHARE_MAX[package], "\n".join(names.vague)


def test_the_house_has_no_more_names_that_say_nothing(
    packages: dict[str, Names],
) -> None:
    vague = sum(len(names.vague) for names in packages.values())
    assert vague <= TOTAL_MAX * sum(names.total for names in packages.values())


def test_one_class_has_the_fields_of_a_disposition() -> None:
    """The end of a delivery has AMQP's terms in one place; in four they came to differ."""
    found = [
        node.name
        for path in sources(SHIPPED)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and _has_field(node, "undeliverable")
    ]
    assert found == ["Disposition"]


def _has_field(node: ast.ClassDef, prefix: str) -> bool:
    """Whether a class has a field, or an entry of `__slots__`, that begins so."""
    names: list[str] = []
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign):
            names += _identifiers(statement.target)
        elif isinstance(statement, ast.Assign):
            names += _identifiers(statement.value)
    return any(name.startswith(prefix) for name in names)


def _identifiers(expression: ast.expr) -> list[str]:
    return [
        str(node.id if isinstance(node, ast.Name) else node.value)
        for node in ast.walk(expression)
        if isinstance(node, ast.Name | ast.Constant)
    ]


def test_no_python_of_a_test_imports_what_lies_in_the_folder_where_it_is_started() -> (
    None
):
    """A `json.py` there would run. For programs that are given as a text there is `-P`."""
    texts = {path: path.read_text() for path in sorted((TOP / "tests").rglob("*.py"))}
    unsafe = [
        f"{path.name}:{node.lineno}"
        for path, text in texts.items()
        if "sys.executable" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Tuple | ast.List) and _follows(node.elts, "-c")
    ]
    assert unsafe == []


def _follows(words: list[ast.expr], option: str) -> bool:
    """Whether this option comes first after the Python of the test."""
    return any(
        isinstance(word, ast.Attribute)
        and word.attr == "executable"
        and isinstance(after, ast.Constant)
        and after.value == option
        for word, after in pairwise(words)
    )
