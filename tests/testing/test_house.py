"""The figures of the house are those of its code; names that say nothing do not grow."""

import pytest

from house import (
    SHIPPED,
    Figures,
    Names,
    figures,
    names_by_package,
    package_of,
    vague_names,
)

#: A package is finished if at most this share of its local names says nothing: one name
#: in two hundred is that of a public parameter, or the `other` of an operator.
FINISHED = 0.005

#: The most that a package may have. Where it is not FINISHED yet, it is the share of the
#: day on which the package was counted; it may only become less.
SHARE_MAX = {
    "plugins/xep_0254": 0.092,
    "plugins/xep_0337": 0.046,
    "plugins/xep_qos": 0.048,
    "qos": 0.082,
    "qos/amqp": FINISHED,
    "qos/audit": FINISHED,
    "qos/bench": FINISHED,
    "qos/bridge": 0.067,
    "qos/cli": 0.065,
    "qos/client": 0.056,
    "qos/core": 0.092,
    "qos/core/amqp": FINISHED,
    "qos/core/message": 0.038,
    "qos/core/queue": 0.089,
    "qos/core/rest": 0.09,
    "qos/demo": FINISHED,
    "qos/engine": 0.049,
    "qos/journal": FINISHED,
    "qos/options": 0.059,
    "qos/rest": 0.083,
    "qos/spark": FINISHED,
    "qos/stores": 0.07,
    "qos/stream": 0.056,
    "qos/testing": FINISHED,
    "qos/worker": 0.03,
}

#: The most of all packages together.
TOTAL_MAX = 0.046


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
