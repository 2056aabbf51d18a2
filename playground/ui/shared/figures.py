"""The figures of a tab: a place for every registered view of it, filled when somebody looks.

Knows which views there are. Refuses to know what any of them shows. `gr.Plot` builds a figure anew
on every change, so nothing here is drawn while tokens arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.blocks import Block

from engine.trace import Trace
from visualizers import applicable, views

PAGE = 2000  # up to here a figure is better squeezed onto the screen than cut off by it


@dataclass(frozen=True)
class Figures:
    """The places of one tab, and what stands there while no view applies."""

    tab: str
    empty: gr.Markdown
    groups: tuple[gr.Column, ...]
    plots: tuple[gr.Plot, ...]

    @property
    def outputs(self) -> list[Block]:
        """What `drawn` gives values for."""
        return [self.empty, *self.groups, *self.plots]

    def drawn(self, traces: Sequence[Trace], at: int | None) -> list[Any]:
        """What each place shows for these traces; views that do not apply are hidden."""
        fitting = applicable(traces)
        shown = [view in fitting for view in views(self.tab)]
        return [
            gr.update(visible=not any(shown)),
            *(gr.update(visible=shows) for shows in shown),
            *(
                _roomy(view.draw(traces, at)) if shows else gr.skip()
                for view, shows in zip(views(self.tab), shown, strict=True)
            ),
        ]


def places(tab: str, empty: str) -> Figures:
    """An empty, hidden place for every view of the tab, under the view's own words."""
    words = gr.Markdown(empty, elem_classes="to-come")
    groups, plots = [], []
    with gr.Row(elem_classes="figures", equal_height=False):
        for view in views(tab):
            with gr.Column(visible=False, min_width=320, elem_id=f"figure-{view.id}") as group:
                gr.Markdown(view.summary, elem_classes="summary")
                plots.append(gr.Plot(show_label=False, container=False))
            groups.append(group)
    return Figures(tab, words, tuple(groups), tuple(plots))


def _roomy(figure: Any) -> Any:
    """A figure that needs much more than a screen's width gets it, and is scrolled."""
    needed = (figure.layout.meta or {}).get("min_width", 0)
    return figure.update_layout(width=needed) if needed > PAGE else figure
