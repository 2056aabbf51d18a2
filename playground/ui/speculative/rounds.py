"""A closer look at one drafter of a race: its rounds and what made its drafts hit or miss.

Knows which figures there are and when they are drawn: while somebody looks at them. Refuses to work
anything out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import gradio as gr
from gradio.blocks import Block

from engine.errors import PlaygroundError
from engine.trace import Trace
from engine.trace.rounds import needs
from playground.speculation.race import Lane, Race
from playground.speculation.theory import Theory, theory
from visualizers import View, views
from visualizers.speculative.theory import DraftLengthTheory

EMPTY = (
    "After a race, for the drafter chosen here: every round with what was drafted and what became "
    "of it, how probable drafted tokens were for both models, how far into a draft tokens are "
    "kept, and what theory says about draft lengths."
)
Drawn = dict[Block, Any]


def _views() -> list[View]:
    """The figures of the section: those of a single run, and those of drafts in a comparison."""
    of_drafts = [view for view in views("strategy") if view.id.startswith("speculative_")]
    first, *rest = views("rounds")
    return [first, *of_drafts, *rest]


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
        hidden: Drawn = {group: gr.Column(visible=False) for group in self.groups}
        if race is None or lane is None or lane.trace is None or not needs(lane.trace):
            return {self.words: EMPTY if lane is None else _nothing(lane), **hidden}
        words, told = said(race, lane)
        inputs: dict[type, Any] = {Trace: [named(lane)]}
        if told is not None and not told.tree:
            inputs[DraftLengthTheory] = DraftLengthTheory(
                lane.drafter.name, told.ideal, told.here, told.length, told.measured
            )
        shown: Drawn = {}
        for view, group, plot in zip(_views(), self.groups, self.plots, strict=True):
            data = inputs.get(view.input)
            if data is not None and view.needs(lane.trace if view.input is Trace else data):
                shown |= {group: gr.Column(visible=True), plot: view.draw(data)}
        return {self.words: words, **hidden, **shown}


def section() -> Closer:
    """The section."""
    words = gr.Markdown(EMPTY, elem_id="spec-closer-words", elem_classes="spec-advice")
    groups, plots = [], []
    with gr.Row(elem_classes="figures", equal_height=False):
        for view in _views():
            with gr.Column(visible=False, min_width=320, elem_id=f"lab-{view.id}") as group:
                gr.Markdown(view.summary, elem_classes="summary")
                plots.append(gr.Plot(show_label=False, container=False))
            groups.append(group)
    return Closer(words, tuple(groups), tuple(plots))


def named(lane: Lane) -> Trace:
    """A run under the name it raced by, which figures write beside it."""
    assert lane.trace is not None
    return replace(lane.trace, strategy=lane.drafter.name, settings={})


def said(race: Race, lane: Lane) -> tuple[str, Theory | None]:
    """What theory makes of the run, with the best draft length in words."""
    plain = race.plain
    if plain is None or plain.trace is None or lane.trace is None:
        words = "without a plain run there is nothing to hold it against"
        return f"{lane.drafter.name}: {words}.", None
    try:
        told = theory(plain.trace, lane.trace)
    except PlaygroundError as error:
        return f"{lane.drafter.name}: {error}.", None
    costs = told.costs
    words = (
        f"{lane.drafter.name}: of the drafted tokens that were judged {told.acceptance:.0%} were"
        f" kept. Drafting one took {costs.draft_ms:.1f} ms, a step of the model"
        f" {costs.plain_ms:.1f} ms and judging a draft {costs.verify_ms:.1f} ms."
    )
    return f"{words} {_advice(told)}", told


def _advice(told: Theory) -> str:
    if told.tree:
        return "It drafts a tree, of which the formula for chains says little."
    if told.best == 0:
        return "**At these costs not drafting is best** for this prompt."
    noun = "token" if told.best == 1 else "tokens"
    more = " or more" if told.best == len(told.here) - 1 else ""
    return (
        f"**The best draft length for this prompt is {told.best} {noun}{more}**, which should be"
        f" {told.here[told.best]:.2f} times as fast as plain decoding; this run drafted"
        f" {told.length:.1f} on average and was {told.measured:.2f} times as fast."
    )


def _nothing(lane: Lane) -> str:
    return lane.error or f"{lane.drafter.name} drafted nothing on this prompt."
