"""The section Attack: changes a watermarked text and measures what is left of its score."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import gradio as gr

from engine.watermark import detector as watermark
from engine.watermark.detection import Detection
from engine.watermark.statistics import Z_THRESHOLD, Score
from playground.ui.shared import html
from playground.ui.shared.comparison import Comparison
from playground.ui.shared.events import EVERY, QUICK, Updates, Values, visitor
from playground.ui.shared.jobs import JOB, JobControls, Jobs, Report, job_controls
from playground.ui.shared.pages import App, ComparisonEvents
from playground.ui.watermark import texts
from playground.ui.watermark.detector_settings import THRESHOLD_HELP
from playground.ui.watermark.texts import WatermarkedText
from playground.watermarks.attacks import apply as attacks
from playground.watermarks.attacks.apply import ATTACKS, Point
from visualizers.watermark.attack import AttackCurve, AttackResult, watermark_attack

_DESCRIPTION = (
    "Choose a column with a watermark and change its text. The changed text is tokenized again "
    "before the detector, which has the key, examines it."
)
_FIRST = "delete"
_STEPS = {False: 9, True: 4}  # strengths of a curve; fewer if the model generates text
_MAX_JOBS = 4
_NAME = "Score before and after the attack"
_HEAD = ("", "z", "exact p", "verdict", "tokens scored", "green")


@dataclass(frozen=True)
class AttackSection:
    """The components of the section."""

    app: App
    column: gr.Dropdown
    attack: gr.Dropdown
    about: gr.Markdown
    strength: gr.Slider
    seed: gr.Number
    threshold: gr.Number
    once: gr.Checkbox
    seeds: gr.Slider
    controls: JobControls
    table: gr.HTML
    text: gr.Textbox
    plot: gr.Plot

    @property
    def inputs(self) -> set[Any]:
        """The fields."""
        fields = {self.column, self.attack, self.strength, self.seed, self.threshold, self.once}
        return fields | {self.seeds}

    def connect(self, tab: gr.Tab, comparison: ComparisonEvents) -> None:
        """Connect the section; ``tab`` is that of the Watermark page."""
        jobs = Jobs("an attack", _MAX_JOBS)

        def show_columns(now: str | None, request: gr.Request) -> Any:
            columns = texts.columns_with_watermark(comparison.current(request))
            if not columns:  # none has ended yet; an empty menu would reject events on their way
                return gr.skip()
            keys = [key for _, key, _ in columns]
            marked = [key for _, key, has_mark in columns if has_mark]
            value = now if now in keys else next(iter([*marked, *keys]), None)
            return gr.Dropdown(choices=[(name, key) for name, key, _ in columns], value=value)

        def show_attack(name: str | None) -> tuple[Any, Any]:
            if name is None:
                return gr.skip(), gr.skip()
            attack = ATTACKS[name]
            return _about(name), gr.Slider(maximum=attack.highest, value=attack.default)

        def start_attack(values: Values, request: gr.Request) -> Iterator[Updates]:
            current = comparison.current(request)
            steps = _attack(self, jobs, current, values, visitor(request))
            yield from self.controls.run(steps)

        def start_curve(values: Values, request: gr.Request) -> Iterator[Updates]:
            current = comparison.current(request)
            yield from self.controls.run(_curve(self, jobs, current, values, visitor(request)))

        for event in (comparison.finished, tab.select):
            event(show_columns, self.column, self.column, **EVERY)
        self.attack.input(show_attack, self.attack, [self.about, self.strength], **QUICK)
        attack_button, curve_button = self.controls.start
        shown = [*self.controls.outputs, self.table, self.text]
        attack_button.click(start_attack, self.inputs, shown, **JOB)
        curve_button.click(start_curve, self.inputs, [*self.controls.outputs, self.plot], **JOB)
        jobs.connect_stop(self.controls.stop)


class Outcome(NamedTuple):
    """A text before and after an attack."""

    before: Detection
    after: Detection
    text: str


def build_attack(app: App) -> AttackSection:
    """The section."""
    first = ATTACKS[_FIRST]
    gr.Markdown(_DESCRIPTION, elem_classes="summary")
    with gr.Row(elem_classes="lab-form"):
        column = gr.Dropdown([], label="Column", interactive=True, elem_id="attack-column")
        choices = [(one.title, one.id) for one in ATTACKS.values()]
        attack = gr.Dropdown(
            choices, value=_FIRST, label="Attack", interactive=True, elem_id="attack-name"
        )
        strength = gr.Slider(
            0,
            first.highest,
            value=first.default,
            step=0.01,
            label="Strength",
            elem_id="attack-strength",
        )
        seed = gr.Number(0, precision=0, minimum=0, label="Seed", elem_id="attack-seed")
        threshold = gr.Number(
            Z_THRESHOLD, label="z threshold", info=THRESHOLD_HELP, elem_id="attack-threshold"
        )
        seeds = gr.Slider(1, 8, value=5, step=1, label="Seeds per strength", elem_id="attack-seeds")
        once = gr.Checkbox(False, label="Count repeated n-grams once", elem_id="attack-once")
    about = gr.Markdown(_about(_FIRST), elem_id="attack-about", elem_classes="summary")
    controls = job_controls("attack", attack="Attack", curve="Measure all strengths")
    table = gr.HTML(elem_id="attack-table", elem_classes="lab-output", padding=False)
    text = gr.Textbox(
        label="Text after the attack",
        lines=5,
        max_lines=14,
        interactive=False,
        buttons=["copy"],
        visible=False,
        elem_id="attacked",
    )
    with gr.Row(elem_classes="figures"):
        plot = gr.Plot(
            show_label=False, container=False, visible=False, elem_id="attack-curve-plot"
        )
    return AttackSection(
        *(app, column, attack, about, strength, seed, threshold, once, seeds),
        *(controls, table, text, plot),
    )


def _about(name: str) -> str:
    attack = ATTACKS[name]
    slow = " The model generates text, which is slow." if attack.writes else ""
    return f"{attack.summary} Strength is {attack.strength}, up to {attack.highest:g}.{slow}"


def _target(
    section: AttackSection, comparison: Comparison | None, values: Values
) -> WatermarkedText:
    """The text, and the arguments of the detector."""
    found = texts.watermarked(comparison, values[section.column], section.app.labs)
    options = {"z_threshold": values[section.threshold], "ignore_repeated": values[section.once]}
    return found._replace(detection={**found.detection, **options})


def _attack(
    section: AttackSection, jobs: Jobs, comparison: Comparison | None, values: Values, visitor: str
) -> Iterator[Updates]:
    """Attack once; yields the progress, then the outcome."""
    target = _target(section, comparison, values)
    name, strength = (values[one] for one in (section.attack, section.strength))
    seed = values[section.seed] or 0

    def work(stop: threading.Event, report: Report) -> None:
        before = watermark.detect(target.lab.model, target.ids, **target.detection)
        done = attacks.attack(
            target.lab, target.ids, name, strength, seed, stop=stop, on_tokens=report
        )
        after = watermark.detect(target.lab.model, done.ids, **target.detection)
        report(Outcome(before, after, done.text))

    generated = 0
    for batch in jobs.run(visitor, work):
        generated += sum(item for item in batch if isinstance(item, int))
        yield section.controls.status(f"{generated} tokens generated …" if generated else "…")
        for outcome in batch:
            if isinstance(outcome, Outcome):
                yield {
                    **section.controls.status(f"After the attack: {outcome.after.reason}."),
                    section.table: _table(outcome),
                    section.text: gr.Textbox(value=outcome.text, visible=True),
                }


def _table(outcome: Outcome) -> str:
    """The score of the tokens, of the re-tokenized text, and after the attack."""
    before, after = outcome.before, outcome.after
    rows = [_row("as generated", before, before.verdict)]
    if trip := before.round_trip:
        rows.append(_row("re-tokenized, unchanged", trip.score, trip.verdict))
    return html.table(_NAME, _HEAD, [*rows, _row("after the attack", after, after.verdict)])


def _row(name: str, score: Score | Detection, verdict: str) -> list[str]:
    if not score.tokens_scored:
        return [name, "–", "–", verdict, "0", "–"]
    numbers = [f"{score.z_score:.2f}", html.probability(score.exact_p)]
    return [name, *numbers, verdict, str(score.tokens_scored), f"{score.green_fraction:.1%}"]


def _curve(
    section: AttackSection, jobs: Jobs, comparison: Comparison | None, values: Values, visitor: str
) -> Iterator[Updates]:
    """Attack at increasing strengths with several seeds; if stopped, draws the points so far."""
    target = _target(section, comparison, values)
    attack, first = ATTACKS[values[section.attack]], values[section.seed] or 0
    steps = _STEPS[attack.writes]
    strengths = [round(attack.highest * step / steps, 4) for step in range(steps + 1)]
    seeds = range(first, first + int(values[section.seeds]))
    total = len(strengths) * len(seeds)

    def work(stop: threading.Event, report: Report) -> None:
        points = attacks.curve(
            *(target.lab, target.ids, attack.id, strengths, seeds),
            **{"stop": stop, "on_tokens": report, **target.detection},
        )
        for point in points:
            report(point)

    points: list[Point] = []
    generated = 0
    for batch in jobs.run(visitor, work):
        points += [item for item in batch if isinstance(item, Point)]
        generated += sum(item for item in batch if type(item) is int)
        tokens = f", {generated} tokens generated" if generated else ""
        text = f"{len(points)} of {total} attacks{tokens}"
        yield section.controls.status(text, len(points), total)
    stopped = "" if len(points) == total else f"Stopped after {len(points)} of {total} attacks."
    yield section.controls.status(stopped or f"{total} attacks, {len(seeds)} for each strength.")
    if points:
        results = tuple(AttackResult(one.strength, one.seed, one.after) for one in points)
        curve = AttackCurve(
            *(attack.title, attack.strength, results),
            *(points[0].before, values[section.threshold]),
        )
        yield {section.plot: gr.Plot(value=watermark_attack(curve), visible=True)}
