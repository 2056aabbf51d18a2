"""The rounds of one drafter: its drafts, how many were accepted, and what theory predicts."""

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
from playground.ui.shared.events import Updates
from playground.ui.shared.figures import FigurePlaces, figure_places
from visualizers import views
from visualizers.speculative.theory import DraftLengthTheory

_EMPTY = (
    "After a race, this shows the rounds of the drafter chosen above: each draft and what became "
    "of it, the probability of drafted tokens for both models, the acceptance rate by position, "
    "and the speed-up that theory predicts for each draft length."
)


@dataclass(frozen=True)
class RoundsSection:
    """The components of the section."""

    text: gr.Markdown
    figures: FigurePlaces

    @property
    def outputs(self) -> list[Block]:
        """The components that `draw` updates."""
        return [self.text, *self.figures.outputs]

    def draw(self, race: Race | None, lane: Lane | None) -> Updates:
        """Draw the figures of one lane."""
        if race is None or lane is None or lane.trace is None or not needs(lane.trace):
            return {self.text: _EMPTY if lane is None else _no_drafts(lane), **self.figures.hide()}
        text, found = _describe(race, lane)
        inputs: dict[type, Any] = {Trace: [titled(lane)]}
        if found is not None and not found.tree:
            inputs[DraftLengthTheory] = DraftLengthTheory(
                lane.drafter.name, found.ideal, found.here, found.length, found.measured
            )
        return {self.text: text, **self.figures.draw(inputs)}


def build_rounds() -> RoundsSection:
    """The section: figures of a single run, and those of drafts in a comparison."""
    text = gr.Markdown(_EMPTY, elem_id="spec-closer-words", elem_classes="spec-advice")
    of_drafts = [view for view in views("strategy") if view.id.startswith("speculative_")]
    first, *rest = views("rounds")
    return RoundsSection(text, figure_places([first, *of_drafts, *rest], "lab"))


def titled(lane: Lane) -> Trace:
    """The trace under the drafter's name, which the figures show."""
    assert lane.trace is not None
    return replace(lane.trace, strategy=lane.drafter.name, settings={})


def _describe(race: Race, lane: Lane) -> tuple[str, Theory | None]:
    """Measured costs and the best draft length, in words."""
    name, plain = lane.drafter.name, race.plain
    if plain is None or plain.trace is None or lane.trace is None:
        return f"{name}: no prediction without a plain run.", None
    try:
        found = theory(plain.trace, lane.trace)
    except PlaygroundError as error:
        return f"{name}: {error}.", None
    costs = found.costs
    text = (
        f"{name}: {found.acceptance:.0%} of the verified tokens were accepted. Drafting a token "
        f"took  {costs.draft_ms:.1f} ms, a plain step {costs.plain_ms:.1f} ms and verifying a draft"
        f" {costs.verify_ms:.1f} ms."
    )
    return f"{text} {_advice(found)}", found


def _advice(found: Theory) -> str:
    if found.tree:
        return "It drafts a tree; the formula is for chains."
    if found.best == 0:
        return "**At these costs plain decoding is fastest** on this prompt."
    noun = "token" if found.best == 1 else "tokens"
    more = " or more" if found.best == len(found.here) - 1 else ""
    return (
        f"**The best draft length for this prompt is {found.best} {noun}{more}**, with a predicted"
        f" speed-up of {found.here[found.best]:.2f}; this run drafted {found.length:.1f} on average"
        f" and had a speed-up of {found.measured:.2f}."
    )


def _no_drafts(lane: Lane) -> str:
    return lane.error or f"{lane.drafter.name} drafted no tokens on this prompt."
