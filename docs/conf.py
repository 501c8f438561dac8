"""The settings of Sphinx for the guide: `make docs`."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

from qos import __version__

project = "xmpp-qos"
author = "xmpp-qos contributors"
copyright = "2026, xmpp-qos contributors"  # noqa: A001 - the name is Sphinx's
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "limits_table",
]
exclude_patterns = ["_ext", "code"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["guide.css"]
html_title = f"xmpp-qos {__version__}"
html_copy_source = False
html_show_sphinx = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# In the docstrings single backticks mark code, as in Markdown.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_default_options = {"members": True, "inherited-members": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

nitpick_ignore_regex = [
    # Of other projects: their manuals are not at hand when this is built.
    (
        r"py:.*",
        r"(_asyncio|asyncio|collections|os|pathlib|pyarrow|pyspark|slixmpp|sqlite3|ssl"
        r"|types|typing|xml|ET)\b.*",
    ),
    (
        r"py:(class|attr)",
        r"(BasePlugin.dependencies|ClientXMPP|Column|ComponentXMPP|DeltaTable|ElementBase"
        r"|JID|Message|Path|SparkSession|StructType|date)",
    ),
    # No part of the public interface, but of its annotations.
    (r"py:class", r"qos\.(core|engine|stores\.base)\..*|xep_qos\.feed\.HandlerT"),
    (r"py:.*", r"Connected|JournalWriter|Json|LevelOrWord|NoSpark|ServerOptions"),
]


def keep_first_line(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Keep napoleon from taking `Seconds: …` for a type: types are annotations here."""
    if what in {"attribute", "data", "property"}:
        lines[:0] = ["..", ""]  # an empty comment, which has no colon
    for number in range(len(lines) - 1, 0, -1):
        if lines[number - 1].strip() in {"Returns:", "Yields:"}:
            text = lines[number].lstrip()
            indent = lines[number].removesuffix(text)
            lines.insert(number, f"{indent}\\ ")  # nothing, which has no colon either


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", keep_first_line, priority=100)
