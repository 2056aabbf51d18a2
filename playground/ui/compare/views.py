"""The views that scripts draw: live columns, step inspector and tree.

Their templates are constant, because Gradio evaluates templates as scripts. Token text is untrusted
and reaches the page as text content only.
"""

from __future__ import annotations

import gradio as gr

from playground.ui import assets

_LIVE_STYLES = (
    *("compare/web/live_view.css", "compare/web/columns.css", "compare/web/cards.css"),
    *("compare/web/candidate_card.css", "compare/web/playback.css"),
)
_LIVE_EVENTS = ("started", "over", "forked", "edited", "pinned", "sent")
STOP = assets.listener("compare/web/feed_stream.js", "stopRuns")  # stops the runs on the page


def live_columns() -> gr.HTML:
    """The columns of tokens; the value is what `Runs.compare` returns.

    Events: ``started`` when runs start; ``over`` when all have ended; ``forked``, ``edited``,
    ``pinned`` and ``sent`` for what the visitor does.
    """
    return gr.HTML(
        value="",
        html_template=assets.text("compare/web/live_view.html"),
        css_template=assets.text(*_LIVE_STYLES),
        js_on_load=assets.mount("compare/web/live_view.js", *_LIVE_EVENTS),
        apply_default_css=False,
        elem_id="live",
    )


def preset_chips(value: str) -> gr.HTML:
    """The examples; the value is what `presets.listing` returns.

    Event: ``chosen`` with the ``index`` of an example.
    """
    return gr.HTML(
        value=value,
        html_template=assets.text("compare/web/presets.html"),
        css_template=assets.text("compare/web/presets.css"),
        js_on_load=assets.mount("compare/web/presets.js", "chosen"),
        apply_default_css=False,
        elem_id="presets",
    )


def dock_handle() -> gr.HTML:
    """The upper edge of the dock, which resizes and collapses it."""
    return gr.HTML(
        html_template=assets.text("compare/web/dock.html"),
        css_template=assets.text("compare/web/dock.css"),
        js_on_load=assets.mount("compare/web/dock.js"),
        apply_default_css=False,
        elem_id="dock-handle",
    )


def step_inspector() -> gr.HTML:
    """One step: the candidates, and what each processor did to them."""
    return gr.HTML(
        html_template=assets.text("compare/web/step_view.html"),
        css_template=assets.text("shared/web/toolbar.css", "compare/web/step_view.css"),
        js_on_load=assets.mount("compare/web/step_view.js"),
        apply_default_css=False,
        elem_id="step-view",
    )


def tree() -> gr.HTML:
    """The candidates of runs that branch, growing while they run."""
    return gr.HTML(
        html_template=assets.text("shared/web/tree_panel.html"),
        css_template=assets.text("shared/web/toolbar.css", "shared/web/tree_panel.css"),
        js_on_load=assets.mount("compare/web/tree_view.js"),
        apply_default_css=False,
        elem_id="tree-view",
    )
