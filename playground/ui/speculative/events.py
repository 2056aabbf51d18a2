"""What happens in the tab Speculative when something is pressed or changed.

Knows the parts of the tab by name. Refuses to know where they stand and how drafters run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from engine.settings import Limits
from playground import Playground
from playground.speculation.race import Lane, Race
from playground.ui.compare.components import KINDS, QUICK, QUIET, Parts, Values, visitor
from playground.ui.shared.job_controls import WORKING, Bench, Drawn, lab_of
from playground.ui.shared.jobs import Jobs
from playground.ui.shared.model_loading import Labs
from playground.ui.speculative import INSIDE, RESULT, Speculative, race, results
from playground.ui.speculative import draft_length as ahead
from playground.ui.speculative import losslessness as proof
from playground.ui.speculative import temperature as warmth
from playground.ui.speculative.example_prompts import EXAMPLES, Example
from playground.ui.speculative.race import Kept

# One after the other: a link and a model come at the same time, in either order, and whoever comes
# last must have heard of both.
_FITTING = {**QUIET, "concurrency_limit": 1, "concurrency_id": "race form"}
_MOST = 8  # visitors with a race, most of them waiting
_MOST_TESTS = 2

# A job of the tab: its screens, for a lab, the values of the form and a visitor.
Work = Callable[[Playground, Values, str], Iterator[Drawn]]


def connect(parts: Parts, labs: Labs, limits: Limits) -> None:
    """Connect every section."""
    tab = parts.tabs.speculative
    _connect_form(parts, tab, labs, limits)
    _connect_jobs(parts, tab, labs)
    _connect_looks(tab)


def _connect_form(parts: Parts, tab: Speculative, labs: Labs, limits: Limits) -> None:
    form = tab.form
    drafters = [tab.proof.drafter, tab.ahead.drafter]

    def fit(name: str, ticked: list[str], wished: list[str] | None, layer: int) -> Drawn:
        if not name:
            return {form.missing: gr.skip()}
        lab = labs.lab(name)
        able = form.able(lab)
        first = able[0] if able else None
        others: Drawn = {one: gr.Dropdown(choices=able, value=first) for one in drafters}
        return {**form.fitted(lab, wished or ticked or None, layer), **others}

    def follow(name: str, ticked: list[str], wished: list[str] | None, layer: int) -> Drawn:
        return fit(name if wished else "", ticked, wished, layer)

    def drawn(sampling: bool) -> Any:
        return gr.Slider(visible=sampling)

    def above(prompt: str, kind: str) -> tuple[str, str]:
        return prompt, kind

    asked = [parts.loaded, form.drafters, form.wished, form.layer]
    fitted = [form.drafters, form.missing, form.layer, *drafters]
    parts.loaded.change(fit, asked, fitted, **_FITTING)
    form.wished.change(follow, asked, fitted, **_FITTING)
    form.drafters.input(lambda: None, None, form.wished, **QUICK)
    form.sampling.change(drawn, form.sampling, form.temperature, **QUICK)
    taken = [parts.form.prompt, parts.form.kind]
    form.above.click(above, taken, [form.prompt, form.kind], **QUICK)
    filled = [form.prompt, form.kind, form.point, form.tokens, form.sampling, form.temperature]
    for button, example in zip(form.examples, EXAMPLES, strict=True):
        button.click(_filling(example, limits), None, filled, **QUICK)


def _filling(example: Example, limits: Limits) -> Callable[[], tuple[Any, ...]]:
    hot = example.temperature is not None
    tokens = min(example.max_new_tokens, limits.max_new_tokens)

    def fill() -> tuple[Any, ...]:
        heat: dict[str, Any] = {"value": example.temperature} if hot else {}
        shown = gr.update(visible=hot, **heat)
        return example.prompt, KINDS[example.chat], example.point, tokens, hot, shown

    return fill


def _connect_jobs(parts: Parts, tab: Speculative, labs: Labs) -> None:
    """Connect the buttons that begin work, each with its Stop."""
    track = race.Track()
    races, grids, heats = (Jobs(name, _MOST) for name in ("a race", "a grid", "a measurement"))
    tests = Jobs("a test", _MOST_TESTS)
    form, course = tab.form, tab.course

    def racing(lab: Playground, values: Values, who: str) -> Iterator[Drawn]:
        return race.run(course, form, races, track, lab, values, who)

    def testing(lab: Playground, values: Values, who: str) -> Iterator[Drawn]:
        return proof.test(tab.proof, form, tests, lab, values, who)

    def measuring(lab: Playground, values: Values, who: str) -> Iterator[Drawn]:
        return ahead.measure(tab.ahead, form, grids, track, lab, values, who)

    def warming(lab: Playground, values: Values, who: str) -> Iterator[Drawn]:
        asked = (values[tab.ahead.drafter], int(values[tab.ahead.tokens]))
        return warmth.measure(tab.ahead.warmth, form, heats, track, lab, values, asked, who)

    grid: set[Any] = {tab.ahead.drafter, tab.ahead.tokens}
    odds: set[Any] = {tab.proof.drafter, tab.proof.draws}
    for bench, jobs, work, own, outputs in (
        (course.bench, races, racing, set[Any](), [course.lanes, course.ran]),
        (tab.proof.bench, tests, testing, odds, [tab.proof.found]),
        (tab.ahead.bench, grids, measuring, grid, [tab.ahead.found]),
        (tab.ahead.warmth.bench, heats, warming, grid, [tab.ahead.warmth.found]),
    ):
        go, inputs = _begun(bench, work, labs, parts), {*form.inputs, parts.loaded, *own}
        bench.begin[0].click(go, inputs, [*bench.outputs, *outputs], **WORKING)
        jobs.stops_with(bench.stop)


def _begun(bench: Bench, work: Work, labs: Labs, parts: Parts) -> Callable[..., Iterator[Drawn]]:
    """The listener of a button that begins a job."""

    def steps(values: Values, who: str) -> Iterator[Drawn]:
        yield from work(lab_of(labs, values[parts.loaded]), values, who)

    def go(values: Values, request: gr.Request) -> Iterator[Drawn]:
        yield from bench.run(steps(values, visitor(request)))

    return go


def _connect_looks(tab: Speculative) -> None:
    """Connect what is drawn of a race once it is over, apart from its stream."""
    ran, which = tab.course.ran, tab.which
    figures = [tab.clock, *tab.closer.outputs]

    def over(kept: Kept[Race], opened: str) -> Drawn:
        found = kept.value
        names = [lane.drafter.name for lane in found.lanes if _drafted(lane)]
        best = max(filter(_drafted, found.lanes), key=_rate, default=None)
        value = best.drafter.name if best else None
        return {
            tab.results: results.shown(found),
            which: gr.Radio(choices=names, value=value, visible=bool(names)),
            **_looked(tab, found, value, opened),
        }

    def look(kept: Kept[Race] | None, name: str | None, opened: str) -> Drawn:
        return _looked(tab, kept.value if kept else None, name, opened)

    def turn(opened: str) -> Callable[[Kept[Race] | None, str | None], Drawn]:
        def turned(kept: Kept[Race] | None, name: str | None) -> Drawn:
            return {tab.opened: opened, **look(kept, name, opened)}

        return turned

    shown = [tab.proof.lines, *figures]
    ran.change(over, [ran, tab.opened], [tab.results, which, *shown], **QUICK)
    which.input(look, [ran, which, tab.opened], shown, **QUICK)
    for name, each in tab.each.items():
        each.select(turn(name), [ran, which], [tab.opened, *shown], **QUICK)
    outputs = [tab.ahead.shown, tab.ahead.plot]
    tab.ahead.found.change(tab.ahead.drawn, tab.ahead.found, outputs, **QUICK)


def _looked(tab: Speculative, found: Race | None, name: str | None, opened: str) -> Drawn:
    """What the sections below the race show of one drafter; figures only for who sees them."""
    lane = next((one for one in found.lanes if one.drafter.name == name), None) if found else None
    drawn = tab.closer.drawn(found, lane) if opened == INSIDE else {}
    if opened == RESULT and found is not None and found.winner is not None:
        drawn = {tab.clock: gr.Plot(value=results.clock(found), visible=True)}
    return {tab.proof.lines: proof.held(found, lane), **drawn}


def _drafted(lane: Lane) -> bool:
    return not lane.drafter.plain and lane.trace is not None and not lane.error


def _rate(lane: Lane) -> float:
    return lane.tokens_per_second or 0.0
