"""The registry of figures: what a figure declares, and what every figure gets.

A function decorated with `view` returns a plain `go.Figure`; the registry adds the template, title,
margins, height and minimal width that the function did not set.

    @view("kept", title="Tokens kept")
    def kept(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
        \"\"\"How many tokens the processors kept at each step.\"\"\"

Most figures draw the traces of a comparison. A figure of something else declares its ``input`` and
takes one object of that type: a detection, a calibration, the cells of a grid.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec

import plotly.graph_objects as go

from engine.trace import Trace
from visualizers.shared.style import complete

log = logging.getLogger(__name__)

Parameters = ParamSpec("Parameters")

# The tabs of a comparison, which are also the sections of the report, in reading order …
COMPARISON_TABS = ("charts", "scores", "strategy")
# … and those of the Speculative and Watermark pages.
TABS = (
    *COMPARISON_TABS,
    *("race", "rounds", "draft_length"),
    *("detect", "explain", "attack", "calibrate"),
)
LAST = 1000  # the order of a view that declares none


@dataclass(frozen=True)
class View:
    """A registered figure.

    If ``input`` is `Trace`, the function takes all traces of a comparison and leaves out those for
    which ``needs`` is false, so that a run keeps its label and colour from figure to figure. The
    figure applies to a comparison with at least ``min_traces`` traces that it can draw. Otherwise
    the function takes one object of type ``input``.
    """

    id: str
    title: str
    tab: str
    order: int
    input: type
    needs: Callable[[Any], bool]
    min_traces: int
    function: Callable[..., go.Figure]

    @property
    def summary(self) -> str:
        """The first paragraph of the function's docstring, on one line."""
        return " ".join((inspect.getdoc(self.function) or "").split("\n\n")[0].split())

    def draw(self, data: Any, at: int | None = None) -> go.Figure:
        """The figure of ``data``; ``at`` is the token position (from 0) to highlight, for functions
        that have such a parameter."""
        if "at" in inspect.signature(self.function).parameters:
            return self.function(data, at)
        return self.function(data)

    # A trace that was opened from a file may contain notes that no strategy writes: errors of one
    # figure are logged, and the others are shown.

    def applies(self, data: Any) -> bool:
        """Whether the function can draw a trace or another input."""
        try:
            return self.needs(data)
        except Exception:
            log.exception("the data do not fit the figure %s", self.id)
            return False

    def draw_or_log(self, data: Any, at: int | None = None) -> go.Figure | None:
        """Like `draw`, but None if the figure cannot be drawn."""
        try:
            return self.draw(data, at)
        except Exception:
            log.exception("the figure %s could not be drawn", self.id)
            return None


_REGISTRY: dict[str, View] = {}


def view(
    id: str,
    *,
    title: str,
    tab: str = "charts",
    order: int = LAST,
    input: type = Trace,
    needs: Callable[[Any], bool] | None = None,
    min_traces: int = 1,
) -> Callable[[Callable[Parameters, go.Figure]], Callable[Parameters, go.Figure]]:
    """Register a function that draws a figure; its docstring is shown above the figure.

    ``order`` is the place within the tab. ``needs`` says which traces (or other inputs) the
    function can draw: by default every trace that has a step, and every other input.
    """
    if tab not in TABS:
        raise ValueError(f"view {id!r}: unknown tab {tab!r}; choose one of {', '.join(TABS)}")
    if tab in COMPARISON_TABS and input is not Trace:
        raise ValueError(f"view {id!r}: the tab {tab!r} shows figures of traces only")

    def register(function: Callable[Parameters, go.Figure]) -> Callable[Parameters, go.Figure]:
        if id in _REGISTRY:
            other = _REGISTRY[id].function.__module__
            raise ValueError(f"view {id!r} is registered by {other} and {function.__module__}")

        @wraps(function)
        def draw(*args: Parameters.args, **kwargs: Parameters.kwargs) -> go.Figure:
            return complete(function(*args, **kwargs), title)

        default = _has_steps if input is Trace else _always
        _REGISTRY[id] = View(id, title, tab, order, input, needs or default, min_traces, draw)
        return draw

    return register


def _has_steps(trace: Trace) -> bool:
    return bool(trace.steps)


def _always(_: object) -> bool:
    return True


def views(tab: str | None = None) -> tuple[View, ...]:
    """All views, or those of one tab, in reading order: by tab, then ``order``, then id."""
    found = [view for view in _REGISTRY.values() if tab in (None, view.tab)]
    return tuple(sorted(found, key=lambda view: (TABS.index(view.tab), view.order, view.id)))


def applicable(traces: Sequence[Trace]) -> tuple[View, ...]:
    """The views of a comparison that can draw these traces, in reading order."""
    return tuple(
        view
        for view in views()
        if view.tab in COMPARISON_TABS and sum(map(view.applies, traces)) >= view.min_traces
    )
