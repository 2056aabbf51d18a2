"""The section Calibrate: what a detector is worth, measured over many texts.

Knows what may be asked, and where the outcome stands. Refuses to measure: that is done headless,
and what was measured before is kept and comes at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.watermark import config
from playground.ui.compare.components import QUICK, Parts, Values, visitor
from playground.ui.compare.runs import Runs
from playground.ui.shared import browser
from playground.ui.shared.job_controls import WORKING, Bench, Drawn, bench, lab_of
from playground.ui.shared.jobs import Jobs, Tell
from playground.ui.shared.messages import spoken
from playground.ui.shared.model_loading import Labs
from playground.ui.watermark import calibration_results
from playground.watermarks import calibrate as measuring
from playground.watermarks.calibration_result import Calibration, Progress
from playground.watermarks.calibration_spec import CalibrationSpec

_WHAT = (
    "The model writes marked texts; the detector scores them and the human-written texts that come "
    "with the project, which nobody marked. What is measured is kept: asked again, it is there at "
    "once, and what was stopped goes on where it was."
)
_LENGTHS = (25, 50, 100, 150, 200, 300, 400, 600, 800)  # at which texts are scored
_OTHERS = 16  # texts for each further bias, at most
_MOST = 2  # visitors at once


@dataclass(frozen=True)
class Calibrate:
    """The parts of the section; ``found`` is the `Calibration`, which stays on the server."""

    scheme: gr.Dropdown
    bias: gr.Number
    ratio: gr.Number
    texts: gr.Number
    length: gr.Number
    biases: gr.Textbox
    threshold: gr.Number
    keys: gr.Number
    seed: gr.Number
    bench: Bench
    found: gr.State
    shown: gr.Column
    words: gr.Textbox
    table: gr.HTML
    plots: tuple[gr.Plot, ...]
    csv: gr.Button
    json: gr.Button

    @property
    def asked(self) -> set[Any]:
        """What is filled in."""
        own = {self.scheme, self.bias, self.ratio, self.texts, self.length, self.biases}
        return own | {self.threshold, self.keys, self.seed}


def section() -> Calibrate:
    """The section."""
    gr.Markdown(_WHAT, elem_classes="summary")
    with gr.Row(elem_classes="lab-form"):
        scheme = gr.Dropdown(
            list(config.SCHEMES),
            value="lefthash",
            label="Scheme",
            interactive=True,
            elem_id="calibrate-scheme",
        )
        bias = _number("bias", "Bias", 2.0)
        ratio = _number("ratio", "Green list ratio", 0.25)
        texts = _number("texts", "Marked texts", 20)
        length = _number("length", "Tokens of each", 100)
        threshold = _number("threshold", "Threshold of z", 4.0)
        biases = gr.Textbox(
            "0, 1, 4", label="Biases for the cost", max_lines=1, elem_id="calibrate-biases"
        )
        keys = _number("keys", "Keys for human texts", 3)
        seed = _number("seed", "Seed", 0)
    buttons = bench("calibrate", "Calibrate")
    with gr.Column(visible=False, elem_id="calibrated") as shown:
        words = gr.Textbox(
            show_label=False, container=False, interactive=False, elem_id="calibrated-words"
        )
        table = gr.HTML(elem_id="calibrated-table", elem_classes="lab-told", padding=False)
        with gr.Row(elem_classes="lab-actions"):
            csv = gr.Button("Save as CSV", size="sm", elem_id="calibrated-csv")
            json = gr.Button("Save as JSON", size="sm", elem_id="calibrated-json")
        with gr.Row(elem_classes="figures", equal_height=False):
            plots = [
                gr.Plot(show_label=False, container=False, elem_id=f"calibrated-{name}")
                for name in calibration_results.FIGURES
            ]
    return Calibrate(
        *(scheme, bias, ratio, texts, length, biases, threshold, keys, seed),
        *(buttons, gr.State(None), shown, words, table, tuple(plots), csv, json),
    )


def _number(id: str, label: str, value: float) -> gr.Number:
    whole = 0 if isinstance(value, int) else None
    return gr.Number(value, precision=whole, label=label, elem_id=f"calibrate-{id}")


def connect(parts: Parts, section: Calibrate, labs: Labs, limits: Limits, runs: Runs) -> None:
    """Connect the section."""
    jobs = Jobs("a calibration", _MOST)

    def go(values: Values, request: gr.Request) -> Iterator[Drawn]:
        steps = _measured(section, jobs, labs, limits, values, values[parts.loaded], request)
        yield from section.bench.run(steps)

    def chosen(scheme: str) -> tuple[Any, ...]:
        green = scheme != "synthid"
        hidden = gr.Number(visible=green)
        return hidden, hidden, gr.Textbox(value="0, 1, 4" if green else "0")

    def saving(make: Callable[[Calibration], str], name: str) -> Callable[[Any], Any]:
        @spoken
        def save(found: Calibration | None) -> str:
            if found is None:
                raise PlaygroundError("there is no calibration yet")
            return browser.saves(make(found), name)

        return save

    begin = section.bench.begin[0]
    outputs = [*section.bench.outputs, section.found]
    went = begin.click(go, {*section.asked, parts.loaded}, outputs, **WORKING)
    # Apart from the stream, whose every word would else cost the browser four figures.
    shown = [section.shown, section.words, section.table, *section.plots]
    went.then(lambda found: _shown(section, found), section.found, shown, **QUICK)
    own = [section.bias, section.ratio, section.biases]
    section.scheme.input(chosen, section.scheme, own, **QUICK)
    jobs.stops_with(section.bench.stop)
    for button, make, name in (
        (section.csv, Calibration.to_csv, "calibration.csv"),
        (section.json, Calibration.to_json, "calibration.json"),
    ):
        button.click(saving(make, name), section.found, parts.browser, **QUICK)


def _measured(
    section: Calibrate,
    jobs: Jobs,
    labs: Labs,
    limits: Limits,
    values: Values,
    loaded: str,
    request: gr.Request,
) -> Iterator[Drawn]:
    """A calibration: how far it is, then what it found."""
    lab, spec = lab_of(labs, loaded), _spec(section, values)
    _refuse_too_much(spec, limits)

    def work(stop: threading.Event, tell: Tell) -> None:
        for step in measuring.calibrate(lab, spec, stop=stop):
            tell(step)

    step = None
    for news in jobs.follow(visitor(request), work):
        step = news[-1]
        yield section.bench.say(_far(step), step.done, step.total)
    if step is None or step.result is None:
        yield section.bench.say("Stopped. What was written until then is kept.")
        return
    yield {**section.bench.say("Done."), section.found: step.result}


def _far(step: Progress) -> str:
    return f"{step.stage}: {step.done:,} of {step.total:,} {step.unit}"


def _spec(section: Calibrate, values: Values) -> CalibrationSpec:
    """What the fields ask for."""
    scheme, texts = values[section.scheme], values[section.texts]
    green = {"bias": values[section.bias], "greenlist_ratio": values[section.ratio]}
    return CalibrationSpec(
        scheme=scheme,
        fields={} if scheme == "synthid" else green,
        texts=texts,
        length=values[section.length],
        lengths=_LENGTHS,
        threshold=values[section.threshold],
        biases=_biases(values[section.biases]),
        others=min(texts or 0, _OTHERS),
        keys=values[section.keys],
        seed=values[section.seed],
    )


def _biases(text: str) -> tuple[float, ...]:
    try:
        return tuple(dict.fromkeys(float(one) for one in text.split(",") if one.strip()))
    except ValueError as error:
        raise PlaygroundError(
            f"the biases are {text!r}; they must be numbers with commas between them"
        ) from error


def _refuse_too_much(spec: CalibrationSpec, limits: Limits) -> None:
    """Keep a visitor from asking for days of work."""
    further = [bias for bias in spec.biases if bias != spec.bias]
    tokens = (spec.length or 0) * ((spec.texts or 0) + spec.others * len(further))
    if tokens > limits.calibration_tokens:
        raise PlaygroundError(
            f"this asks for {tokens:,} tokens; at most {limits.calibration_tokens:,} are written in"
            " one calibration here: ask for fewer or shorter texts"
        )


def _shown(section: Calibrate, found: Calibration | None) -> Drawn:
    if found is None:
        return {section.shown: gr.skip()}
    return {
        section.shown: gr.Column(visible=True),
        section.words: calibration_results.sentence(found),
        section.table: calibration_results.table(found),
        **dict(zip(section.plots, calibration_results.figures(found), strict=True)),
    }
