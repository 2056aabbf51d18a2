"""The Step view: one token looked at closely, what it was chosen from, what each processor did.

Drawn in the browser from what the live view has heard. Knows which files make it. Refuses to know
runs. Its template is constant, because Gradio evaluates templates as scripts.
"""

from __future__ import annotations

import gradio as gr

from playground.ui import web

_SCRIPTS = ("store.js", "writing.js", "step_reading.js", "step_words.js", "step.js")


def view() -> gr.HTML:
    """The Step view of the place that the page's store points at."""
    return gr.HTML(
        html_template=web.text("step.html"),
        css_template=web.text("tools.css", "step.css"),
        js_on_load=web.text(*_SCRIPTS),
        apply_default_css=False,
        elem_id="step-view",
    )
