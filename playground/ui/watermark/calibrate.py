"""The section Calibrate: measures detection and false alarm rates over many texts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import gradio as gr

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.watermark import config
from engine.watermark.statistics import Z_THRESHOLD
from playground.ui.shared import browser, html
from playground.ui.shared.events import QUICK, Updates, Values, visitor
from playground.ui.shared.jobs import JOB, JobControls, Jobs, Report, job_controls, loaded_lab
from playground.ui.shared.messages import shows_errors
from playground.ui.shared.pages import App
from playground.ui.watermark.detector_settings import THRESHOLD_HELP
from playground.watermarks import roc
from playground.watermarks.calibrate import calibrate
from playground.watermarks.calibration_result import AtLength, Calibration, Progress
from playground.watermarks.calibration_spec import CalibrationSpec
from playground.watermarks.roc import Rate
from visualizers.watermark import roc as roc_figure
from visualizers.watermark.cost import BiasCost, WatermarkCost, watermark_cost
from visualizers.watermark.power import DetectionPower, LengthNeeded, RateAtLength, watermark_power
from visualizers.watermark.scores import ScoreSamples, watermark_scores

_DESCRIPTION = (
    "The model generates watermarked texts; the detector scores them, and human-written texts "
    "without a watermark. Results are stored on the server: the same calibration is shown at once, "
    "and one that was stopped continues where it was."
)
_LENGTHS = (25, 50, 100, 150, 200, 300, 400, 600, 800)  # at which texts are scored
_MAX_OTHERS = 16  # texts for each further bias
_MAX_JOBS = 2
_FIGURES = ("roc", "scores", "power", "cost")
_TOO_FEW = "too few texts"


@dataclass(frozen=True)
class CalibrateSection:
    """The components of the section."""

    app: App
    scheme: gr.Dropdown
    bias: gr.Number
    ratio: gr.Number
    texts: gr.Number
    length: gr.Number
    biases: gr.Textbox
    threshold: gr.Number
    keys: gr.Number
    seed: gr.Number
    controls: JobControls
    result: gr.State  # a `Calibration`
    result_area: gr.Column
    text: gr.Textbox
    table: gr.HTML
    plots: tuple[gr.Plot, ...]
    csv: gr.Button
    json: gr.Button

    @property
    def inputs(self) -> set[Any]:
        """The fields."""
        fields = {self.scheme, self.bias, self.ratio, self.texts, self.length, self.biases}
        return fields | {self.threshold, self.keys, self.seed}

    def connect(self) -> None:
        """Connect the section."""
        app, jobs = self.app, Jobs("a calibration", _MAX_JOBS)

        def start(values: Values, request: gr.Request) -> Iterator[Updates]:
            loaded = values[app.model.loaded]
            yield from self.controls.run(_calibrate(self, jobs, values, loaded, visitor(request)))

        def show_scheme(scheme: str) -> tuple[Any, ...]:
            green = scheme != "synthid"
            field = gr.Number(visible=green)
            return field, field, gr.Textbox(value="0, 1, 4" if green else "0")

        def saving(make: Callable[[Calibration], str], name: str) -> Callable[[Any], Any]:
            @shows_errors
            def save(found: Calibration | None) -> str:
                if found is None:
                    raise PlaygroundError("run a calibration first")
                return browser.download({name: make(found)})

            return save

        outputs = [*self.controls.outputs, self.result]
        inputs = {*self.inputs, app.model.loaded}
        done = self.controls.start[0].click(start, inputs, outputs, **JOB)
        # After the stream: as outputs of it, four figures would cost the browser time at each step.
        shown = [self.result_area, self.text, self.table, *self.plots]
        done.then(self._show, self.result, shown, **QUICK)
        fields = [self.bias, self.ratio, self.biases]
        self.scheme.input(show_scheme, self.scheme, fields, **QUICK)
        jobs.connect_stop(self.controls.stop)
        for button, make, name in (
            (self.csv, Calibration.to_csv, "calibration.csv"),
            (self.json, Calibration.to_json, "calibration.json"),
        ):
            button.click(saving(make, name), self.result, app.browser, **QUICK)

    def _show(self, found: Calibration | None) -> Updates:
        if found is None:
            return {self.result_area: gr.skip()}
        return {
            self.result_area: gr.Column(visible=True),
            self.text: summary(found),
            self.table: rates_table(found),
            **dict(zip(self.plots, figures(found), strict=True)),
        }


def build_calibrate(app: App) -> CalibrateSection:
    """The section."""
    gr.Markdown(_DESCRIPTION, elem_classes="summary")
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
        texts = _number("texts", "Watermarked texts", 20)
        length = _number("length", "Tokens per text", 100)
        threshold = _number("threshold", "z threshold", Z_THRESHOLD, THRESHOLD_HELP)
        biases = gr.Textbox(
            "0, 1, 4",
            label="Other biases, to compare perplexity",
            max_lines=1,
            elem_id="calibrate-biases",
        )
        keys = _number("keys", "Keys tried on human texts", 3)
        seed = _number("seed", "Seed", 0)
    controls = job_controls("calibrate", calibrate="Calibrate")
    with gr.Column(visible=False, elem_id="calibrated") as result_area:
        text = gr.Textbox(
            show_label=False, container=False, interactive=False, elem_id="calibrated-words"
        )
        table = gr.HTML(elem_id="calibrated-table", elem_classes="lab-output", padding=False)
        with gr.Row(elem_classes="lab-actions"):
            csv = gr.Button("Save as CSV", size="sm", elem_id="calibrated-csv")
            json = gr.Button("Save as JSON", size="sm", elem_id="calibrated-json")
        with gr.Row(elem_classes="figures", equal_height=False):
            plots = [
                gr.Plot(show_label=False, container=False, elem_id=f"calibrated-{name}")
                for name in _FIGURES
            ]
    return CalibrateSection(
        *(app, scheme, bias, ratio, texts, length, biases, threshold, keys, seed),
        *(controls, gr.State(None), result_area, text, table, tuple(plots), csv, json),
    )


def _number(id: str, label: str, value: float, info: str | None = None) -> gr.Number:
    whole = 0 if isinstance(value, int) else None
    return gr.Number(value, precision=whole, label=label, info=info, elem_id=f"calibrate-{id}")


def _calibrate(
    section: CalibrateSection, jobs: Jobs, values: Values, loaded: str, visitor: str
) -> Iterator[Updates]:
    """Run a calibration; yields the progress, then the result."""
    lab, spec = loaded_lab(section.app.labs, loaded), _spec(section, values)
    _check_size(spec, section.app.limits)

    def work(stop: threading.Event, report: Report) -> None:
        for step in calibrate(lab, spec, stop=stop):
            report(step)

    step: Progress | None = None
    for batch in jobs.run(visitor, work):
        step = batch[-1]
        text = f"{step.stage}: {step.done:,} of {step.total:,} {step.unit}"
        yield section.controls.status(text, step.done, step.total)
    if step is None or step.result is None:
        yield section.controls.status("Stopped. The texts so far are stored.")
        return
    yield {**section.controls.status("Done."), section.result: step.result}


def _spec(section: CalibrateSection, values: Values) -> CalibrationSpec:
    """The calibration that the fields describe."""
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
        others=min(texts or 0, _MAX_OTHERS),
        keys=values[section.keys],
        seed=values[section.seed],
    )


def _biases(text: str) -> tuple[float, ...]:
    try:
        return tuple(dict.fromkeys(float(one) for one in text.split(",") if one.strip()))
    except ValueError as error:
        raise PlaygroundError(
            f"the biases are {text!r}; they must be numbers separated by commas"
        ) from error


def _check_size(spec: CalibrationSpec, limits: Limits) -> None:
    """Reject a calibration that would take too long."""
    further = [bias for bias in spec.biases if bias != spec.bias]
    tokens = (spec.length or 0) * ((spec.texts or 0) + spec.others * len(further))
    if tokens > limits.calibration_tokens:
        raise PlaygroundError(
            f"this calibration needs {tokens:,} tokens; at most {limits.calibration_tokens:,} are"
            " allowed: choose fewer or shorter texts"
        )


# Results


def rates_table(found: Calibration) -> str:
    """Detection and false alarm rates at each length."""
    rates = [one.target for one in found.by_length[-1].operating]
    head = ["tokens", "mean z", f"detected at z > {found.threshold:g}", "false alarms", "AUC"]
    head += [f"detected at {_percent(rate)} false alarms" for rate in rates]
    return html.table("Rates by length", head, [_row(at) for at in found.by_length])


def summary(found: Calibration) -> str:
    """What was measured, and what the table does not show."""
    spec = found.spec
    needed = ", ".join(
        f"{one.power:.0%} at {one.length} tokens"
        if one.length
        else f"{one.power:.0%} not reached at {spec['length']} tokens"
        for one in found.needed
    )
    return (
        f"{found.model}, {spec['scheme']}: {spec['texts']} watermarked texts of {spec['length']}"
        f" tokens, {found.human_scores} scores of {found.human_texts} human-written texts."
        f" Brackets: 95 % confidence interval. Detected: {needed}; after re-tokenizing"
        f" {rate(found.as_text)}. Done in {found.seconds:.1f} s."
    )


def rate(found: Rate) -> str:
    """A rate with its confidence interval."""
    return f"{_percent(found.share)} ({_percent(found.low)} to {_percent(found.high)})"


def figures(found: Calibration) -> list[Any]:
    """The figures, in the order of `_FIGURES`."""
    human = [sample.scores[-1] for sample in found.human]
    # The requested texts come first; those of other biases only measure perplexity.
    marked = [sample.scores[-1] for sample in found.marked[: found.spec["texts"]]]
    return [
        _roc(found, len(marked)),
        watermark_scores(ScoreSamples(tuple(human), tuple(marked), found.threshold)),
        _power(found),
        _cost(found),
    ]


def _row(at: AtLength) -> list[str]:
    points = [rate(one.true_positives) if one.resolved else _TOO_FEW for one in at.operating]
    rates = [rate(at.found), rate(at.false_alarms)]
    return [str(at.length), f"{at.mean:.2f}", *rates, f"{at.auc:.4f}", *points]


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def _roc(found: Calibration, texts: int) -> Any:
    interval = cache(lambda count: roc.rate(count, texts))
    corners = []
    for one in found.roc:
        bounds = interval(round(one.true_positives * texts))
        place = (one.threshold, one.false_positives, one.true_positives)
        corners.append(roc_figure.RocPoint(*place, bounds.low, bounds.high))
    last = found.by_length[-1]
    operating = [
        roc_figure.OperatingPoint(
            one.target,
            one.true_positives.share,
            one.true_positives.low,
            one.true_positives.high,
            one.resolved,
        )
        for one in last.operating
    ]
    curve = (tuple(corners), tuple(operating), last.auc, found.human_scores)
    return roc_figure.watermark_roc(roc_figure.RocCurve(*curve))


def _power(found: Calibration) -> Any:
    rates = tuple(
        RateAtLength(at.length, at.found.share, at.found.low, at.found.high)
        for at in found.by_length
    )
    needed = tuple(LengthNeeded(one.power, one.length) for one in found.needed)
    return watermark_power(DetectionPower(tuple(found.power), rates, needed, found.threshold))


def _cost(found: Calibration) -> Any:
    costs = tuple(
        BiasCost(
            *(one.bias, one.texts, one.perplexity, one.low, one.high),
            *(one.mean, one.found.share),
        )
        for one in found.costs
    )
    return watermark_cost(WatermarkCost(costs))
