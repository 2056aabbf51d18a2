"""The tab Speculative: drafters race, and what came of their drafts.

Knows its sections and in which order they stand. Refuses to race, to draw and to reckon.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import gradio as gr

from engine.settings import Limits
from playground.ui.speculative import draft_length as ahead
from playground.ui.speculative import form as forms
from playground.ui.speculative import losslessness, markup, race, results, rounds
from playground.ui.speculative.form import Form

_WHAT = (
    "A drafter writes a few tokens ahead, the model judges them all in one pass and keeps those it "
    "agrees with: the same text in fewer passes. Whether that is faster depends on how often the "
    "drafter is right and on what it costs. Let them race."
)
RESULT, INSIDE = "result", "inside"  # the sections whose figures are drawn for who looks


@dataclass(frozen=True)
class Speculative:
    """The parts of the tab."""

    form: Form
    course: race.Course
    results: gr.HTML
    clock: gr.Plot  # all lanes over time
    which: gr.Radio  # the drafter to look at more closely
    closer: rounds.Closer
    proof: losslessness.Proof
    ahead: ahead.Ahead
    each: Mapping[str, gr.Tab]
    opened: gr.State  # the id of the open one


def tab(limits: Limits) -> Speculative:
    """The tab."""
    gr.Markdown(_WHAT, elem_classes="summary")
    form = forms.draw(limits)
    course = race.section()
    which = gr.Radio(
        [], label="Look closer at", interactive=True, visible=False, elem_id="spec-which"
    )
    with gr.Tabs(elem_id="spec-tabs", overflow_behavior="wrap"):
        with gr.Tab("Result", id=RESULT) as of_result:
            told = gr.HTML(
                markup.said(results.EMPTY), elem_id="spec-results", elem_classes="lab-told"
            )
            with gr.Row(elem_classes="figures"):
                clock = gr.Plot(
                    show_label=False, container=False, visible=False, elem_id="spec-clock"
                )
        with gr.Tab("Inside the rounds", id=INSIDE) as of_inside:
            looked = rounds.section()
        with gr.Tab("The same text?", id="proof") as of_proof:
            proved = losslessness.section()
        with gr.Tab("How far ahead?", id="ahead") as of_ahead:
            swept = ahead.section(limits)
    each = {RESULT: of_result, INSIDE: of_inside, "proof": of_proof, "ahead": of_ahead}
    opened = gr.State(RESULT)
    return Speculative(form, course, told, clock, which, looked, proved, swept, each, opened)
