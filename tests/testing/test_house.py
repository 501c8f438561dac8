"""The figures of the house are those of its code."""

from house import SHIPPED, figures, vague_names


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


def test_the_table_counts_what_is_shipped() -> None:
    found = figures()
    assert SHIPPED == ("qos", "plugins")
    assert found.files > 100
    assert found.lines > 10_000
    assert 0 < found.vague.total() < found.names
