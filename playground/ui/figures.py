"""The figures below the columns: a place for every registered view, filled when a run has ended.

Knows which views there are. Refuses to know what any of them shows. `gr.Plot` builds a figure anew
on every change, so nothing here is drawn while tokens arrive.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from engine.trace import Trace
from visualizers import applicable, views

PAGE = 2000  # up to here a figure is better squeezed onto the screen than cut off by it


class Results:
    """A visitor's last traces, told apart by identity: Gradio hashes the state it watches."""

    def __init__(self, traces: tuple[Trace, ...] = ()) -> None:
        self.traces = traces


def places() -> list[gr.Plot]:
    """An empty, hidden plot for every view, in reading order."""
    with gr.Row(elem_id="figures", equal_height=False):
        return [
            gr.Plot(visible=False, show_label=False, min_width=320, elem_id=f"figure-{view.id}")
            for view in views()
        ]


def drawn(results: Results) -> list[dict[str, Any]]:
    """What each place shows for these traces; views that do not apply are hidden."""
    shows = {view.id for view in applicable(results.traces)}
    return [
        gr.update(value=_roomy(view.draw(results.traces)), visible=True)
        if view.id in shows
        else gr.update(visible=False)
        for view in views()
    ]


def _roomy(figure: Any) -> Any:
    """A figure that needs much more than a screen's width gets it, and is scrolled."""
    needed = (figure.layout.meta or {}).get("min_width", 0)
    return figure.update_layout(width=needed) if needed > PAGE else figure
