"""The tab Speculative: drafters race, and what came of their drafts.

Knows its sections, and what a change of each leads to. Refuses to race, to draw and to reckon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from engine.settings import Limits
from playground.ui.loading import Labs
from playground.ui.parts import KINDS, QUICK, Parts, Values, visitor
from playground.ui.speculative import form as forms
from playground.ui.speculative import race
from playground.ui.speculative.form import Form
from playground.ui.speculative.prompts import EXAMPLES, Example
from playground.ui.watermark.bench import WORKING, Drawn, lab_of
from playground.ui.watermark.jobs import Jobs

_WHAT = (
    "A drafter writes a few tokens ahead, the model judges them all in one pass and keeps those it "
    "agrees with: the same text in fewer passes. Whether that is faster depends on how often the "
    "drafter is right and on what it costs. Let them race."
)
_MOST = 8  # visitors with a race, most of them waiting


@dataclass(frozen=True)
class Speculative:
    """The parts of the tab."""

    form: Form
    course: race.Course


def tab(limits: Limits) -> Speculative:
    """The tab."""
    gr.Markdown(_WHAT, elem_classes="summary")
    form = forms.draw(limits)
    course = race.section()
    return Speculative(form, course)


def connect(parts: Parts, labs: Labs, limits: Limits) -> None:
    """Connect every section."""
    tab = parts.tabs.speculative
    _connect_form(parts, tab.form, labs, limits)
    _connect_race(parts, tab, labs)


def _connect_form(parts: Parts, form: Form, labs: Labs, limits: Limits) -> None:
    fitted = [form.drafters, form.missing, form.layer]

    def loaded(name: str, ticked: list[str]) -> Drawn:
        if not name:
            return {form.missing: gr.skip()}
        return form.fitted(labs.lab(name), ticked or None)

    def drawn(sampling: bool) -> Any:
        return gr.Slider(visible=sampling)

    def above(prompt: str, kind: str) -> tuple[str, str]:
        return prompt, kind

    parts.loaded.change(loaded, [parts.loaded, form.drafters], fitted, **QUICK)
    form.sampling.change(drawn, form.sampling, form.temperature, **QUICK)
    taken = [parts.form.prompt, parts.form.kind]
    form.above.click(above, taken, [form.prompt, form.kind], **QUICK)
    filled = [form.prompt, form.kind, form.point, form.tokens, form.sampling, form.temperature]
    for button, example in zip(form.examples, EXAMPLES, strict=True):
        button.click(_filling(example, limits), None, filled, **QUICK)


def _filling(example: Example, limits: Limits) -> Callable[[], tuple[Any, ...]]:
    hot = example.temperature is not None
    tokens = min(example.max_new_tokens, limits.max_new_tokens)
    heat = gr.Slider(value=example.temperature, visible=True) if hot else gr.Slider(visible=False)

    def fill() -> tuple[Any, ...]:
        return example.prompt, KINDS[example.chat], example.point, tokens, hot, heat

    return fill


def _connect_race(parts: Parts, tab: Speculative, labs: Labs) -> None:
    jobs, track = Jobs("a race", _MOST), race.Track()
    course = tab.course

    def steps(values: Values, who: str) -> Iterator[Drawn]:
        lab = lab_of(labs, values[parts.loaded])
        yield from race.run(course, tab.form, jobs, track, lab, values, who)

    def go(values: Values, request: gr.Request) -> Iterator[Drawn]:
        yield from course.bench.run(steps(values, visitor(request)))

    inputs = {*tab.form.inputs, parts.loaded}
    course.bench.begin[0].click(go, inputs, course.outputs, **WORKING)
    jobs.stops_with(course.bench.stop)
