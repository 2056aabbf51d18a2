"""The same text? Greedy texts token by token, and what is drawn by its odds.

Knows how both findings are shown. Refuses to compare and to test: that is done without a page.
"""

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
from playground.ui.compare.components import Values
from playground.ui.shared import html
from playground.ui.shared.job_controls import Bench, Drawn, bench
from playground.ui.shared.jobs import Jobs, Tell
from playground.ui.speculative import markup
from playground.ui.speculative.form import Form

EMPTY = "After a race: the text with drafts and the one without, token by token."
_WHAT = (
    "**Drawn tokens** differ from run to run, so there it is the odds that must be the same. The "
    "test draws many texts of two tokens with drafts and counts them against the probabilities "
    "that plain sampling has, which are computed, not counted."
)
_ROWS = 8  # texts of the test that are shown
_HEAD = ("text", "its probability", "expected", "drawn")


@dataclass(frozen=True)
class Proof:
    """The parts of the section."""

    lines: gr.HTML
    drafter: gr.Dropdown
    draws: gr.Slider
    bench: Bench
    found: gr.HTML


def section() -> Proof:
    """The section."""
    lines = gr.HTML(markup.said(EMPTY), elem_id="spec-lossless", elem_classes="lab-told")
    gr.Markdown(_WHAT, elem_classes="summary")
    with gr.Row(elem_classes="settings detection"):
        drafter = gr.Dropdown(
            [], label="drafter", interactive=True, filterable=False, elem_id="spec-odds-drafter"
        )
        draws = gr.Slider(
            *(50, MOST_DRAWS),
            value=DRAWS,
            step=50,
            label="texts to draw",
            info="More of them see smaller faults.",
            interactive=True,
            elem_id="spec-draws",
        )
    buttons = bench("spec-odds", "Test the odds")
    found = gr.HTML(elem_id="spec-odds", elem_classes="lab-told", padding=False)
    return Proof(lines, drafter, draws, buttons, found)


def held(race: Race | None, lane: Lane | None) -> str:
    """A lane's text against plain decoding's, with the first difference marked."""
    plain = race.plain if race else None
    if lane is None or lane.trace is None or plain is None or plain.trace is None:
        return markup.said(EMPTY)
    try:
        found = lossless.check(plain.trace, lane.trace)
    except PlaygroundError as error:
        return html.words(f"{str(error)[0].upper()}{str(error)[1:]}.")
    differs = found.first.position if found.first else None
    return "".join(
        [
            markup.check(found.same, found.summary),
            markup.pairs(
                (plain.drafter.name, lane.drafter.name),
                (_texts(plain.trace), _texts(lane.trace)),
                differs,
            ),
            markup.said(_closest(found)),
        ]
    )


def _texts(trace: Trace) -> list[str]:
    if not trace.sequences:
        return []
    return [trace.steps[id].text or trace.steps[id].token.text for id in trace.sequences[0].steps]


def _closest(found: Lossless) -> str:
    """Where a tie would break first."""
    pair: Pair | None = found.closest
    if pair is None or pair.plain is None or pair.plain.gap is None:
        return ""
    return (
        f"The closest call was token {pair.position + 1}, where the best two tokens were"
        f" {pair.plain.gap:.2g} apart in log-probability. A pass over several tokens adds up in"
        f" another order than passes over one: that moved log-probabilities by up to"
        f" {found.noise:.2g} here. Only a gap as small as this could turn."
    )


def test(
    section: Proof, form: Form, jobs: Jobs, lab: Playground, values: Values, visitor: str
) -> Iterator[Drawn]:
    """The distribution test: how far it is, then what it found."""
    prompt = form.text(values)
    drafter = form.one(lab, values[section.drafter], values)
    shared = form.shared(values)
    heat = float(values[form.temperature]) if values[form.sampling] else 1.0
    draws = int(values[section.draws])

    def work(stop: threading.Event, tell: Tell) -> None:
        how: dict[str, Any] = {"draws": draws, "temperature": heat, "seed": shared["seed"]}
        for step in check_distribution(lab, prompt, drafter, stop=stop, **how):
            tell(step)

    last: Progress | None = None
    for news in jobs.follow(visitor, work):
        last = news[-1]
        yield section.bench.say(f"{last.stage}: {last.done} of {last.total}", last.done, last.total)
    if last is None or last.result is None:
        yield section.bench.say("Stopped: a test that is broken off says nothing.")
        return
    yield {**section.bench.say("Done."), section.found: _tested(last.result)}


def _tested(found: DistributionCheck) -> str:
    """The finding, what it is worth, and the likeliest texts."""
    rows = [
        [
            "".join(token.text for token in one.tokens).replace("\n", "⏎"),
            html.probability(one.probability),
            f"{one.expected:.1f}",
            str(one.counted),
        ]
        for one in found.outcomes[:_ROWS]
    ]
    rest = len(found.outcomes) - len(rows)
    more = f" {rest} rarer texts count too." if rest > 0 else ""
    return "".join(
        [
            markup.check(found.passed, f"{found.drafter.name}: {found.summary}"),
            markup.said(_worth(found) + more),
            html.table("The likeliest texts", _HEAD, rows),
        ]
    )


def _worth(found: DistributionCheck) -> str:
    """What the test would have noticed."""
    if not found.judged:
        return "No drafted token was judged in these draws, so this says nothing about drafts."
    kept = f"In these draws {found.judged} drafted tokens were judged and {found.accepted} kept."
    if found.detectable_share is None:
        return f"{kept} So few draws would hardly notice a wrong rule."
    return (
        f"{kept} A rule that took {found.detectable_share:.0%} of its texts at random would be"
        " rejected with probability 0.9; a correct one is rejected once in a thousand tests."
    )
