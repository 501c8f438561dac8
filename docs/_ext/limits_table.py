"""The directive `limits-table`: the limits that `python -m qos.limits` prints."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.typing import ExtensionMetadata

from qos.limits import LIMITS


class LimitsTable(SphinxDirective):
    """A table of every limit: its value, its meaning, and the option that sets it."""

    def run(self) -> list[nodes.Node]:
        """Called by docutils."""
        rows = []
        for limit in LIMITS:
            option = limit.name.rpartition(".")[2]
            cell = f"`{option}`" if limit.is_option else ""
            rows.append(f"| {limit.value:,.10g} | {limit.bounds} | {cell} |")
        header = ["| limit | of what | option |", "|--:|---|---|"]
        return self.parse_text_to_nodes("\n".join([*header, *rows]))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Called by Sphinx."""
    app.add_directive("limits-table", LimitsTable)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
