"""What does heat do? One drafter at several temperatures, as a table.

Knows what may be asked and how the outcome is told. Refuses to run anything.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import gradio as gr

from playground import Playground
from playground.speculation.acceptance import TEMPERATURES, AtTemperature, Progress, temperatures
from playground.ui.compare.components import Values
from playground.ui.shared import html
from playground.ui.shared.job_controls import Bench, Drawn, bench
from playground.ui.shared.jobs import Jobs, Tell
from playground.ui.speculative import markup
from playground.ui.speculative.form import Form
from playground.ui.speculative.race import Track

_WHAT = (
    "**Heat** makes the model less sure of its next token, and an unsure model keeps fewer drafts. "
    "The same drafter and prompt, drawn at several temperatures."
)
_HEAD = ("temperature", "accepted", "of judged", "share", "tokens per pass", "entropy, nats")


@dataclass(frozen=True)
class Warmth:
    """The parts of the section."""

    bench: Bench
    found: gr.HTML


def section() -> Warmth:
    """The section; the drafter is chosen above it."""
    gr.Markdown(_WHAT, elem_classes="summary")
    buttons = bench("spec-heat", "Measure temperatures")
    return Warmth(buttons, gr.HTML(elem_id="spec-heat", elem_classes="lab-told", padding=False))


def measure(
    section: Warmth,
    form: Form,
    jobs: Jobs,
    track: Track,
    lab: Playground,
    values: Values,
    asked: tuple[str | None, int],
    visitor: str,
) -> Iterator[Drawn]:
    """A run for each temperature; what was measured stays when it is stopped."""
    name, tokens = asked
    prompt = form.text(values)
    drafter = form.one(lab, name, values)
    shared = {**form.shared(values), "max_new_tokens": tokens}

    def work(stop: threading.Event, tell: Tell) -> None:
        steps = temperatures(lab, prompt, drafter, stop=stop, **shared)
        for step in track.turns(steps, stop, tell):
            tell(step)

    done, total = 0, len(TEMPERATURES)
    for news in jobs.follow(visitor, work):
        told = [item for item in news if isinstance(item, Progress)]
        words = [item for item in news if isinstance(item, str)]
        if told:
            done, total = told[-1].done, told[-1].total
            yield {section.found: _table(drafter.name, told[-1].found)}
        yield section.bench.say(words[-1] if words else f"{done} of {total} runs", done, total)
    cut = "Done." if done == total else f"Stopped after {done} of {total} runs."
    yield section.bench.say(cut)


def _table(name: str, found: tuple[AtTemperature, ...]) -> str:
    rows = [
        [
            f"{one.temperature:g}",
            str(one.share.accepted),
            str(one.share.judged),
            "–" if one.share.rate is None else f"{one.share.rate:.0%}",
            "–" if one.compression is None else f"{one.compression:.2f}",
            "–" if one.entropy is None else f"{one.entropy:.2f}",
        ]
        for one in found
    ]
    return markup.title(name) + html.table("By temperature", _HEAD, rows) if rows else ""
