"""The section Guess: two texts from one prompt and seed, one of them with a watermark.

Which one has it stays on the server until the visitor has guessed.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import gradio as gr

from engine.errors import PlaygroundError
from engine.trace import Trace, Update
from engine.watermark import detector as watermark
from engine.watermark.detection import Detection
from engine.watermark.statistics import Z_THRESHOLD
from playground import Playground
from playground.stopping import Stopped
from playground.ui.shared import html
from playground.ui.shared.events import QUICK, Updates, visitor
from playground.ui.shared.jobs import JOB, JobControls, Jobs, Report, job_controls, loaded_lab
from playground.ui.shared.messages import shows_errors
from playground.ui.shared.pages import App
from playground.watermarks.human_texts import passages
from playground.watermarks.text_generation import PROMPT_TOKENS

_DESCRIPTION = (
    "The model continues a text twice with the same seed, once with a watermark (lefthash, a "
    "quarter of all tokens green) and once without. Can you see which is which? A detector with "
    "the key can."
)
_LENGTH = 50  # tokens of each text
_MAX_JOBS = 4
_BIASES = [("bias 4: strong", 4.0), ("bias 2: default", 2.0), ("bias 1: weak", 1.0)]
_SIDES = ("A", "B")


class Round(NamedTuple):
    """Two texts, and which of them has the watermark: 0 or 1."""

    model: str
    texts: tuple[tuple[int, ...], tuple[int, ...]]
    marked: int


class Score(NamedTuple):
    """The visitor's score."""

    right: int = 0
    rounds: int = 0

    @property
    def text(self) -> str:
        """The score, and what chance would give."""
        if not self.rounds:
            return ""
        noun = "guess" if self.rounds == 1 else "guesses"
        return f"{self.right} of {self.rounds} {noun} correct; chance gives {self.rounds / 2:g}."


@dataclass(frozen=True)
class GuessSection:
    """The components of the section."""

    app: App
    bias: gr.Radio
    controls: JobControls
    prompt: gr.Textbox
    texts: tuple[gr.Textbox, ...]
    guesses: tuple[gr.Button, ...]
    verdict: gr.HTML
    score_text: gr.Markdown
    round: gr.State  # a `Round`
    score: gr.State  # a `Score`

    def connect(self) -> None:
        """Connect the section."""
        app, jobs = self.app, Jobs("a round", _MAX_JOBS)
        length = min(_LENGTH, app.limits.max_new_tokens)

        def start(bias: float, loaded: str, request: gr.Request) -> Iterator[Updates]:
            yield from self.controls.run(
                self._new_round(jobs, loaded, bias, length, visitor(request))
            )

        outputs = [self.prompt, *self.texts, *self.guesses, self.verdict, self.round]
        self.controls.start[0].click(
            start, [self.bias, app.model.loaded], [*self.controls.outputs, *outputs], **JOB
        )
        jobs.connect_stop(self.controls.stop)
        states = [self.round, self.score]
        texts = [self.controls.progress, self.verdict, self.score_text]
        for side, button in enumerate(self.guesses):
            button.click(self._guess(side), states, [*self.guesses, *texts, *states], **QUICK)

    def _guess(self, side: int) -> Any:
        @shows_errors
        def guess(round: Round | None, score: Score) -> Updates:
            if round is None:
                raise PlaygroundError("this round is over; start a new one")
            lab = self.app.labs.lab(round.model)
            found = [
                watermark.detect(lab.model, ids, z_threshold=Z_THRESHOLD, limits=lab.limits)
                for ids in round.texts
            ]
            now = Score(score.right + (side == round.marked), score.rounds + 1)
            return {
                **{button: gr.Button(interactive=False) for button in self.guesses},
                **self.controls.status(""),
                self.verdict: _verdict(found, round.marked, side),
                self.score_text: now.text,
                self.round: None,
                self.score: now,
            }

        return guess

    def _new_round(
        self, jobs: Jobs, loaded: str, bias: float, length: int, visitor: str
    ) -> Iterator[Updates]:
        """Generate both texts; yields the progress, then both of them."""
        if bias not in dict(_BIASES).values():
            raise PlaygroundError(f"bias is {bias!r}; choose one of the offered values")
        lab = loaded_lab(self.app.labs, loaded)
        prompt = _opening(lab)
        seed, marked = secrets.randbelow(2**31), secrets.randbelow(2)
        plain = {"seed": seed, "max_new_tokens": length, "min_new_tokens": length}
        with_mark = {**plain, "watermarking_config": {"bias": bias}}
        choices = [("sample", with_mark if side == marked else plain) for side in range(2)]

        def work(stop: threading.Event, report: Report) -> None:
            for update in lab.stream(prompt, choices, stop=stop):
                report(update)

        yield {
            **{text: gr.Textbox(value="", visible=True) for text in self.texts},
            **{button: gr.Button(visible=True, interactive=False) for button in self.guesses},
            self.prompt: gr.Textbox(value=prompt, visible=True),
            self.verdict: "",
            self.round: None,
        }
        traces: dict[int, Trace] = {}
        generated = 0
        for batch in jobs.run(visitor, work):
            # The sum of both: the speed of each would give the watermark away.
            generated += sum(len(update.steps) for update in batch if isinstance(update, Update))
            traces |= {update.run: update.trace for update in batch if update.trace}
            text = f"{generated} of {2 * length} tokens"
            yield self.controls.status(text, generated, 2 * length)
        ids = (_ids(traces[0]), _ids(traces[1]))
        yield {
            **self.controls.status("Which text has the watermark?"),
            **{
                place: lab.token_decoder.text(own)
                for place, own in zip(self.texts, ids, strict=True)
            },
            **{button: gr.Button(interactive=True) for button in self.guesses},
            self.round: Round(lab.model.name, ids, marked),
        }


def build_guess(app: App) -> GuessSection:
    """The section."""
    gr.Markdown(_DESCRIPTION, elem_classes="summary")
    bias = gr.Radio(_BIASES, value=2.0, label="Strength of the watermark", elem_id="guess-bias")
    controls = job_controls("guess", **{"new-round": "New round"})
    prompt = gr.Textbox(
        label="Both texts continue", interactive=False, visible=False, elem_id="guess-prompt"
    )
    texts, guesses = [], []
    with gr.Row(equal_height=True):
        for side in _SIDES:
            with gr.Column(min_width=280):
                text = gr.Textbox(
                    label=side,
                    lines=5,
                    max_lines=12,
                    interactive=False,
                    visible=False,
                    elem_id=f"guess-text-{side}",
                )
                button = gr.Button(
                    f"{side} has the watermark", size="sm", visible=False, elem_id=f"guess-{side}"
                )
            texts.append(text)
            guesses.append(button)
    verdict = gr.HTML(elem_id="guess-verdict", elem_classes="lab-output", padding=False)
    score_text = gr.Markdown(elem_id="guess-tally")
    return GuessSection(
        *(app, bias, controls, prompt, tuple(texts), tuple(guesses), verdict, score_text),
        *(gr.State(None), gr.State(Score())),
    )


def _ids(trace: Trace) -> tuple[int, ...]:
    if trace.stop.rule == "cancelled":
        raise Stopped
    if trace.error:
        raise PlaygroundError(trace.error)
    return trace.sequences[0].token_ids


def _opening(lab: Playground) -> str:
    """The beginning of a human-written text."""
    ids = lab.token_decoder.ids(secrets.choice(passages()).text)
    return lab.token_decoder.text(ids[:PROMPT_TOKENS], at_start=True)


def _verdict(found: list[Detection], marked: int, guessed: int) -> str:
    """Whether the guess was right, the detector's numbers, and both texts with green tokens."""
    right = "Correct" if guessed == marked else "Wrong"
    score, other = found[marked], found[1 - marked]
    unsure = "" if score.verdict == "marked" else " The detector does not find it here either."
    text = (
        f"{right}: {_SIDES[marked]} has the watermark. {score.green_fraction:.0%} of its scored"
        f" tokens are green, in the other text {other.green_fraction:.0%}; chance gives"
        f" {score.chance.mean:.0%}.{unsure}"
    )
    rows = [
        [
            f"{side}, watermarked" if place == marked else side,
            f"{one.z_score:.2f}",
            html.probability(one.exact_p),
            one.verdict,
            f"{one.green_tokens} of {one.tokens_scored}",
        ]
        for place, (side, one) in enumerate(zip(_SIDES, found, strict=True))
    ]
    head = ("", "z", "exact p", f"verdict at z > {Z_THRESHOLD:g}", "green tokens")
    texts = "".join(
        html.tokens(side, [(token.text, token.verdict) for token in one.tokens])
        for side, one in zip(_SIDES, found, strict=True)
    )
    return html.sentence(text) + html.table("Detection", head, rows) + texts
