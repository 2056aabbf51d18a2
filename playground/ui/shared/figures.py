"""Places for the registered figures of a tab.

`gr.Plot` rebuilds a figure on every change, so figures are drawn when a run has ended or a tab is
opened, never while tokens arrive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.blocks import Block

from engine.trace import Trace
from playground.ui.shared.events import Updates
from visualizers import View, applicable, views

_SCREEN = 2000  # pixels: up to this width a figure shrinks to the screen; wider ones are scrolled


@dataclass(frozen=True)
class FigurePlaces:
    """A place for each figure, below its description; hidden while the figure does not apply."""

    views: tuple[View, ...]
    groups: tuple[gr.Column, ...]
    plots: tuple[gr.Plot, ...]

    @property
    def outputs(self) -> list[Block]:
        """The components that the methods below update."""
        return [*self.groups, *self.plots]

    def draw(self, inputs: Mapping[type, Any]) -> Updates:
        """Draw the figures that have an input of their type; a sequence of traces for `Trace`."""

        def applies(view: View) -> bool:
            data = inputs.get(view.input)
            if view.input is Trace:
                return data is not None and any(map(view.applies, data))
            return data is not None and view.applies(data)

        return self._show([view for view in self.views if applies(view)], inputs)

    def draw_comparison(self, traces: Sequence[Trace], position: int | None) -> Updates:
        """Draw the figures that apply to a comparison; ``position`` is highlighted."""
        return self._show(applicable(traces), {Trace: traces}, position)

    def hide(self) -> Updates:
        """Hide all figures."""
        return self._show([], {})

    def _show(
        self, shown: Sequence[View], inputs: Mapping[type, Any], position: int | None = None
    ) -> Updates:
        updates: Updates = {}
        for view, group, plot in zip(self.views, self.groups, self.plots, strict=True):
            figure = view.draw_or_log(inputs[view.input], position) if view in shown else None
            updates[group] = gr.Column(visible=figure is not None)
            if figure is not None:
                updates[plot] = _scrollable(figure)
        return updates


def figure_places(figures: Sequence[View], prefix: str = "figure") -> FigurePlaces:
    """Empty places; the element ids are ``prefix`` and the figure's id."""
    groups, plots = [], []
    with gr.Row(elem_classes="figures", equal_height=False):
        for view in figures:
            with gr.Column(visible=False, min_width=320, elem_id=f"{prefix}-{view.id}") as group:
                gr.Markdown(view.summary, elem_classes="summary")
                plots.append(gr.Plot(show_label=False, container=False))
            groups.append(group)
    return FigurePlaces(tuple(figures), tuple(groups), tuple(plots))


@dataclass(frozen=True)
class FigureTab:
    """The figures of a comparison in one tab, and a text for when none applies."""

    empty: gr.Markdown
    places: FigurePlaces

    @property
    def outputs(self) -> list[Block]:
        """The components that `draw` updates."""
        return [self.empty, *self.places.outputs]

    def draw(self, traces: Sequence[Trace], position: int | None) -> Updates:
        """Draw the figures that apply to these traces; hide the others."""
        some = any(view in self.places.views for view in applicable(traces))
        return {
            self.empty: gr.Markdown(visible=not some),
            **self.places.draw_comparison(traces, position),
        }


def figure_tab(tab: str, empty: str) -> FigureTab:
    """The figures of a tab, in reading order."""
    text = gr.Markdown(empty, elem_classes="to-come")
    return FigureTab(text, figure_places(views(tab)))


def _scrollable(figure: Any) -> Any:
    """Give a figure that is much wider than a screen its full width."""
    needed = (figure.layout.meta or {}).get("min_width", 0)
    return figure.update_layout(width=needed) if needed > _SCREEN else figure
