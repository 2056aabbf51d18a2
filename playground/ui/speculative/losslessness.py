"""Losslessness: greedy texts compared token by token, and sampled texts by their distribution."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from engine.errors import PlaygroundError
from engine.trace import Trace
from playground import Playground
from playground.speculation import lossless
from playground.speculation.distribution_check import (
    DRAWS,
    MOST_DRAWS,
    DistributionCheck,
    Progress,
    check_distribution,
)
from playground.speculation.lossless import Lossless, Pair
from playground.speculation.race import Lane, Race
from playground.ui.shared import html
from playground.ui.shared.events import Updates, Values
from playground.ui.shared.jobs import JobControls, Jobs, Report, job_controls
from playground.ui.speculative.form import Form

_EMPTY = "After a race, this compares the text with drafts to the text without, token by token."
_DESCRIPTION = (
    "**Sampled tokens** differ from run to run; there the distribution must be the same. The test "
    "samples many texts of two tokens with drafts and compares their counts with the exact "
    "probabilities of plain sampling."
)
_MAX_ROWS = 8  # texts that are listed
_HEAD = ("text", "probability", "expected", "sampled")


@dataclass(frozen=True)
class LosslessnessSection:
    """The components of the section."""

    comparison: gr.HTML
    drafter: gr.Dropdown
    samples: gr.Slider
    controls: JobControls
    result: gr.HTML


def build_losslessness() -> LosslessnessSection:
    """The section."""
    comparison = gr.HTML(html.note(_EMPTY), elem_id="spec-lossless", elem_classes="lab-output")
    gr.Markdown(_DESCRIPTION, elem_classes="summary")
    with gr.Row(elem_classes="settings detection"):
        drafter = gr.Dropdown(
            [], label="drafter", interactive=True, filterable=False, elem_id="spec-lossless-drafter"
        )
        samples = gr.Slider(
            *(50, MOST_DRAWS),
            value=DRAWS,
            step=50,
            label="texts to sample",
            info="More texts detect smaller differences.",
            interactive=True,
            elem_id="spec-draws",
        )
    controls = job_controls("spec-lossless", test="Test the distribution")
    result = gr.HTML(elem_id="spec-lossless", elem_classes="lab-output", padding=False)
    return LosslessnessSection(comparison, drafter, samples, controls, result)


def compare_texts(race: Race | None, lane: Lane | None) -> str:
    """A lane's text below that of plain decoding, with the first difference highlighted."""
    plain = race.plain if race else None
    if lane is None or lane.trace is None or plain is None or plain.trace is None:
        return html.note(_EMPTY)
    try:
        found = lossless.check(plain.trace, lane.trace)
    except PlaygroundError as error:
        return html.sentence(f"{str(error)[0].upper()}{str(error)[1:]}.")
    return "".join(
        [
            html.check(found.same, found.summary),
            html.aligned(
                (plain.drafter.name, lane.drafter.name),
                (_texts(plain.trace), _texts(lane.trace)),
                found.first.position if found.first else None,
            ),
            html.note(_closest(found)),
        ]
    )


def _texts(trace: Trace) -> list[str]:
    if not trace.sequences:
        return []
    return [trace.steps[id].text or trace.steps[id].token.text for id in trace.sequences[0].steps]


def _closest(found: Lossless) -> str:
    """The smallest gap between the best two tokens, and the numerical noise."""
    pair: Pair | None = found.closest
    if pair is None or pair.plain is None or pair.plain.gap is None:
        return ""
    return (
        f"The smallest gap between the best two tokens was {pair.plain.gap:.2g} in log-probability,"
        f" at token {pair.position + 1}. A forward pass over several tokens adds numbers in another"
        f" order, which changed log-probabilities by up to {found.noise:.2g} here. Only a gap"
        " smaller than this could change a token."
    )


def run_test(
    section: LosslessnessSection,
    form: Form,
    jobs: Jobs,
    lab: Playground,
    values: Values,
    visitor: str,
) -> Iterator[Updates]:
    """Run the distribution test; yields its progress, then its result."""
    prompt = form.prompt_of(values)
    drafter = form.drafter(lab, values[section.drafter], values)
    options: dict[str, Any] = {
        "draws": int(values[section.samples]),
        "temperature": float(values[form.temperature]) if values[form.sampling] else 1.0,
        "seed": form.shared_of(values)["seed"],
    }

    def work(stop: threading.Event, report: Report) -> None:
        for step in check_distribution(lab, prompt, drafter, stop=stop, **options):
            report(step)

    last: Progress | None = None
    for batch in jobs.run(visitor, work):
        last = batch[-1]
        text = f"{last.stage}: {last.done} of {last.total}"
        yield section.controls.status(text, last.done, last.total)
    if last is None or last.result is None:
        yield section.controls.status("Stopped. An incomplete test has no result.")
        return
    yield {**section.controls.status("Done."), section.result: _result(last.result)}


def _result(found: DistributionCheck) -> str:
    """The verdict, the test's power, and the most probable texts."""
    rows = [
        [
            "".join(token.text for token in one.tokens).replace("\n", "⏎"),
            html.probability(one.probability),
            f"{one.expected:.1f}",
            str(one.counted),
        ]
        for one in found.outcomes[:_MAX_ROWS]
    ]
    rest = len(found.outcomes) - len(rows)
    more = f" {rest} less probable texts are also counted." if rest > 0 else ""
    return "".join(
        [
            html.check(found.passed, f"{found.drafter.name}: {found.summary}"),
            html.note(_power(found) + more),
            html.table("Most probable texts", _HEAD, rows),
        ]
    )


def _power(found: DistributionCheck) -> str:
    if not found.verified:
        return "No drafted token was verified, so the test says nothing about drafts."
    counts = f"{found.verified} drafted tokens were verified and {found.accepted} accepted."
    if found.detectable_share is None:
        return f"{counts} So few samples would hardly detect a wrong acceptance rule."
    return (
        f"{counts} A rule that takes {found.detectable_share:.0%} of its texts at random fails"
        " with a probability of 90 %, a correct one in one of a thousand tests."
    )
