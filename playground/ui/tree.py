"""The Tree view: every candidate of the runs that branched, growing while they go on.

Drawn in the browser from what the live view has heard. Knows which files make it. Refuses to know
runs. Its template is constant, because Gradio evaluates templates as scripts.
"""

from __future__ import annotations

from pathlib import Path

import gradio as gr

_HERE = Path(__file__).parent
_SCRIPTS = (
    "store.js",
    "writing.js",
    "tree_layout.js",
    "tree_words.js",
    "tree_draw.js",
    "tree.js",
)


def view() -> gr.HTML:
    """The trees of the columns that the page's store holds."""
    return gr.HTML(
        html_template=_file("tree.html"),
        css_template=_file("tree.css"),
        js_on_load="\n".join(map(_file, _SCRIPTS)),
        apply_default_css=False,
        elem_id="tree-view",
    )


def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
