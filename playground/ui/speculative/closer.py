"""A closer look at one drafter of a race: its rounds and what made its drafts hit or miss.

Knows which figures there are and when they are drawn: while somebody looks at them. Refuses to work
anything out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.blocks import Block

from engine.errors import PlaygroundError
from engine.rounds import needs
from playground.speculation.race import Lane, Race
from playground.speculation.theory import Theory, theory

EMPTY = (
    "After a race, for the drafter chosen here: every round with what was drafted and what became "
    "of it, how probable drafted tokens were for both models, how far into a draft tokens are "
    "kept, and what theory says about draft lengths."
)
Drawn = dict[Block, Any]

# What draws a figure of a run with drafts, by the figure's id.
FIGURES: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True)
class Closer:
    """The parts of the section."""

    words: gr.Markdown
    groups: tuple[gr.Column, ...]
    plots: tuple[gr.Plot, ...]

    @property
    def outputs(self) -> list[Block]:
        """What `drawn` gives values for."""
        return [self.words, *self.groups, *self.plots]

    def drawn(self, race: Race | None, lane: Lane | None) -> Drawn:
        """The figures of one lane."""
        if race is None or lane is None or lane.trace is None or not needs(lane.trace):
            words = EMPTY if lane is None else _nothing(lane)
            hidden: Drawn = {group: gr.Column(visible=False) for group in self.groups}
            return {self.words: words, **hidden}
        return {self.words: said(race, lane)}


def section() -> Closer:
    """The section."""
    words = gr.Markdown(EMPTY, elem_id="spec-closer-words")
    groups, plots = [], []
    with gr.Row(elem_classes="figures", equal_height=False):
        for name, draw in FIGURES.items():
            with gr.Column(visible=False, min_width=320, elem_id=f"figure-{name}") as group:
                about = " ".join((inspect.getdoc(draw) or "").split("\n\n")[0].split())
                gr.Markdown(about, elem_classes="summary")
                plots.append(gr.Plot(show_label=False, container=False))
            groups.append(group)
    return Closer(words, tuple(groups), tuple(plots))


def said(race: Race, lane: Lane) -> str:
    """What theory makes of the run, with the best draft length in words."""
    try:
        told = _theory(race, lane)
    except PlaygroundError as error:
        return f"{lane.entrant.name}: {error}."
    if told is None:
        return f"{lane.entrant.name}: without a plain run there is nothing to hold it against."
    costs = told.costs
    kept = f"{lane.entrant.name}: of the drafted tokens that were judged {told.acceptance:.0%} were"
    cost = (
        f"kept. Drafting one took {costs.draft_ms:.1f} ms, a step of the model"
        f" {costs.plain_ms:.1f} ms and judging a draft {costs.verify_ms:.1f} ms."
    )
    return f"{kept} {cost} {_advice(told)}"


def _advice(told: Theory) -> str:
    if told.tree:
        return "It drafts a tree, of which the formula for chains says little."
    if told.best == 0:
        return "**At these costs not drafting is best** for this prompt."
    noun = "token" if told.best == 1 else "tokens"
    return (
        f"**The best draft length for this prompt is {told.best} {noun}**, which should be"
        f" {told.here[told.best]:.2f} times as fast as plain decoding; this run drafted"
        f" {told.length:.1f} on average and was {told.measured:.2f} times as fast."
    )


def _theory(race: Race, lane: Lane) -> Theory | None:
    plain = race.plain
    if plain is None or plain.trace is None or lane.trace is None:
        return None
    return theory(plain.trace, lane.trace)


def _nothing(lane: Lane) -> str:
    return lane.error or f"{lane.entrant.name} drafted nothing on this prompt."
