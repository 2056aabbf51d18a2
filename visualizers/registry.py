"""What a view is, and the register of them.

Knows the contract: traces in, one figure out. Refuses to know any view.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import plotly.graph_objects as go

from engine.trace import Trace

Needs = Callable[[Trace], bool]

# Where on the page a view stands.
TABS = ("across", "scored", "tree", "why")


class Draw(Protocol):
    """Draws every trace of a comparison; ``at`` is the place in the texts (from 0) to point out."""

    def __call__(self, traces: Sequence[Trace], at: int | None = None) -> go.Figure:
        """The figure."""
        ...


@dataclass(frozen=True)
class View:
    """One registered view.

    ``draw`` takes every trace of a comparison and leaves out those it cannot show, so that a trace
    keeps its name and colour from view to view. A view that compares has nothing to show of fewer
    than ``least`` traces.
    """

    id: str
    title: str
    order: int
    tab: str
    needs: Needs
    draw: Draw
    least: int = 1

    @property
    def summary(self) -> str:
        """The docstring's first paragraph on one line: the text people read about the view."""
        return " ".join((inspect.getdoc(self.draw) or "").split("\n\n")[0].split())


_REGISTER: dict[str, View] = {}


def view(
    id: str, *, title: str, order: int, needs: Needs, tab: str = "across", least: int = 1
) -> Callable[[Draw], Draw]:
    """Register a drawing function under ``id``; ``order`` is its place on its tab of the page."""
    if tab not in TABS:
        raise ValueError(f"there is no tab {tab!r}; a view stands on one of {', '.join(TABS)}")

    def register(draw: Draw) -> Draw:
        if id in _REGISTER:
            raise ValueError(f"two views are called {id!r}")
        _REGISTER[id] = View(id, title, order, tab, needs, draw, least)
        return draw

    return register


def views() -> tuple[View, ...]:
    """Every view, in reading order."""
    return tuple(
        sorted(_REGISTER.values(), key=lambda view: (TABS.index(view.tab), view.order, view.id))
    )


def applicable(traces: Sequence[Trace]) -> tuple[View, ...]:
    """The views that can show at least one of the traces, in reading order."""
    return tuple(view for view in views() if sum(map(view.needs, traces)) >= view.least)
