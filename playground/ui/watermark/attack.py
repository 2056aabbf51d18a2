"""The section Attack: a marked text is changed, and what is left of its score.

Knows which attacks there are, and how their outcome is shown. Refuses to attack and to detect.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import gradio as gr

from engine.settings import Limits
from engine.watermark import detector as watermark
from engine.watermark.detection import Detection
from engine.watermark.statistics import Score
from playground.ui.compare.components import QUICK, Parts, Values, visitor
from playground.ui.compare.runs import Runs
from playground.ui.shared import html
from playground.ui.shared.job_controls import WORKING, Bench, Drawn, bench
from playground.ui.shared.jobs import Jobs, Tell
from playground.ui.shared.model_loading import Labs
from playground.ui.watermark import watermarked_columns as marked
from playground.ui.watermark.watermarked_columns import Marked
from playground.watermarks.attacks import apply as attacks
from playground.watermarks.attacks.apply import ATTACKS, Point
from visualizers.watermark.attack import AttackCurve, AttackResult, watermark_attack

_WHAT = (
    "Choose a column that was written with a watermark and change its text. What an attack made is "
    "a mere text: it is encoded again before the detector, which knows the key, looks at it."
)
_FIRST = "delete"
_STEPS = {False: 9, True: 4}  # strengths of a curve; fewer where the model writes
_MOST = 4  # visitors at once
_NAME = "The score before and after"
_HEAD = ("", "z", "exact p", "verdict", "tokens scored", "green")


@dataclass(frozen=True)
class Attack:
    """The parts of the section."""

    column: gr.Dropdown
    attack: gr.Dropdown
    about: gr.Markdown
    strength: gr.Slider
    seed: gr.Number
    threshold: gr.Number
    once: gr.Checkbox
    seeds: gr.Slider
    bench: Bench
    table: gr.HTML
    text: gr.Textbox
    plot: gr.Plot

    @property
    def asked(self) -> set[Any]:
        """What is filled in."""
        own = {self.column, self.attack, self.strength, self.seed, self.threshold, self.once}
        return own | {self.seeds}


class Outcome(NamedTuple):
    """A text before and after an attack."""

    before: Detection
    after: Detection
    text: str


def section() -> Attack:
    """The section."""
    first = ATTACKS[_FIRST]
    gr.Markdown(_WHAT, elem_classes="summary")
    with gr.Row(elem_classes="lab-form"):
        column = gr.Dropdown([], label="Text of column", interactive=True, elem_id="attack-column")
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
        threshold = gr.Number(3.0, label="Threshold of z", elem_id="attack-threshold")
        seeds = gr.Slider(1, 8, value=5, step=1, label="Curve seeds", elem_id="attack-seeds")
        once = gr.Checkbox(False, label="Repeated n-grams once", elem_id="attack-once")
    about = gr.Markdown(_about(_FIRST), elem_id="attack-about", elem_classes="summary")
    buttons = bench("attack", "Attack", "Curve")
    table = gr.HTML(elem_id="attack-table", elem_classes="lab-told", padding=False)
    text = gr.Textbox(
        label="The text after the attack",
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
    return Attack(
        *(column, attack, about, strength, seed, threshold, once, seeds),
        *(buttons, table, text, plot),
    )


def connect(parts: Parts, section: Attack, labs: Labs, limits: Limits, runs: Runs) -> None:
    """Connect the section."""
    jobs = Jobs("an attack", _MOST)

    def columns(now: str | None, request: gr.Request) -> Any:
        names = marked.names(runs.board(visitor(request)))
        known = [key for _, key in names]
        with_mark = [key for name, key in names if name.endswith("(marked)")]
        value = now if now in known else next(iter([*with_mark, *known]), None)
        return gr.Dropdown(choices=names, value=value)

    def chosen(name: str) -> tuple[str, Any]:
        attack = ATTACKS[name]
        return _about(name), gr.Slider(maximum=attack.highest, value=attack.default)

    def go(values: Values, request: gr.Request) -> Iterator[Drawn]:
        board = runs.board(visitor(request))
        yield from section.bench.run(
            _attacked(section, jobs, labs, board, values, visitor(request))
        )

    def curve(values: Values, request: gr.Request) -> Iterator[Drawn]:
        board = runs.board(visitor(request))
        yield from section.bench.run(_curve(section, jobs, labs, board, values, visitor(request)))

    told = {**QUICK, "trigger_mode": "multiple"}
    for event in (parts.live.over, parts.tabs.each["watermark"].select):
        event(columns, section.column, section.column, **told)
    section.attack.input(chosen, section.attack, [section.about, section.strength], **QUICK)
    begin_attack, begin_curve = section.bench.begin
    shown = [*section.bench.outputs, section.table, section.text]
    begin_attack.click(go, section.asked, shown, **WORKING)
    begin_curve.click(curve, section.asked, [*section.bench.outputs, section.plot], **WORKING)
    jobs.stops_with(section.bench.stop)


def _about(name: str) -> str:
    attack = ATTACKS[name]
    slow = " The model writes, which takes its time." if attack.writes else ""
    return f"{attack.summary} Strength is {attack.strength}, up to {attack.highest:g}.{slow}"


def _target(section: Attack, labs: Labs, board: Any, values: Values) -> Marked:
    """The text, and what the detector is told about it."""
    found = marked.found(board, values[section.column], labs)
    told = {"z_threshold": values[section.threshold], "ignore_repeated": values[section.once]}
    return found._replace(detection={**found.detection, **told})


def _attacked(
    section: Attack, jobs: Jobs, labs: Labs, board: Any, values: Values, visitor: str
) -> Iterator[Drawn]:
    """One attack: how many tokens the model has written, then the outcome."""
    target = _target(section, labs, board, values)
    name, strength = (values[one] for one in (section.attack, section.strength))
    seed = values[section.seed] or 0

    def work(stop: threading.Event, tell: Tell) -> None:
        before = watermark.detect(target.lab.model, target.ids, **target.detection)
        done = attacks.attack(
            target.lab, target.ids, name, strength, seed, stop=stop, on_tokens=tell
        )
        after = watermark.detect(target.lab.model, done.ids, **target.detection)
        tell(Outcome(before, after, done.text))

    written = 0
    for news in jobs.follow(visitor, work):
        written += sum(item for item in news if isinstance(item, int))
        yield section.bench.say(f"The model has written {written} tokens …" if written else "…")
        for outcome in news:
            if isinstance(outcome, Outcome):
                yield {
                    **section.bench.say(f"After the attack: {outcome.after.reason}."),
                    section.table: _table(outcome),
                    section.text: gr.Textbox(value=outcome.text, visible=True),
                }


def _table(outcome: Outcome) -> str:
    """The score as the tokens were written, as their text is read, and after the attack."""
    before, after = outcome.before, outcome.after
    rows = [_row("as it was written", before, before.verdict)]
    if trip := before.round_trip:
        rows.append(_row("read again as text, nothing changed", trip.score, trip.verdict))
    return html.table(_NAME, _HEAD, [*rows, _row("after the attack", after, after.verdict)])


def _row(name: str, score: Score | Detection, verdict: str) -> list[str]:
    if not score.tokens_scored:
        return [name, "–", "–", verdict, "0", "–"]
    numbers = [f"{score.z_score:.2f}", html.probability(score.exact_p)]
    return [name, *numbers, verdict, str(score.tokens_scored), f"{score.green_fraction:.1%}"]


def _curve(
    section: Attack, jobs: Jobs, labs: Labs, board: Any, values: Values, visitor: str
) -> Iterator[Drawn]:
    """An attack at growing strength from several seeds; stopped, it shows what there is."""
    target = _target(section, labs, board, values)
    attack, first = ATTACKS[values[section.attack]], values[section.seed] or 0
    steps = _STEPS[attack.writes]
    strengths = [round(attack.highest * step / steps, 4) for step in range(steps + 1)]
    seeds = range(first, first + int(values[section.seeds]))
    total = len(strengths) * len(seeds)

    def work(stop: threading.Event, tell: Tell) -> None:
        points = attacks.curve(
            *(target.lab, target.ids, attack.id, strengths, seeds),
            **{"stop": stop, "on_tokens": tell, **target.detection},
        )
        for point in points:
            tell(point)

    points: list[Point] = []
    written = 0
    for news in jobs.follow(visitor, work):
        points += [item for item in news if isinstance(item, Point)]
        written += sum(item for item in news if type(item) is int)
        writing = f", {written} tokens written" if written else ""
        yield section.bench.say(f"{len(points)} of {total} attacks{writing}", len(points), total)
    stopped = "" if len(points) == total else f"Stopped after {len(points)} of {total} attacks."
    yield section.bench.say(stopped or f"{total} attacks, {len(seeds)} for each strength.")
    if points:
        results = tuple(AttackResult(one.strength, one.seed, one.after) for one in points)
        curve = AttackCurve(
            *(attack.title, attack.strength, results),
            *(points[0].before, values[section.threshold]),
        )
        yield {section.plot: gr.Plot(value=watermark_attack(curve), visible=True)}
