"""The section Guess: two texts from one prompt and one seed, and one of them is marked.

Knows how a round is played. Refuses to tell: which text is marked stays on the server until a
visitor has guessed.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import gradio as gr

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.trace import Trace, Update
from engine.watermark import detector as watermark
from engine.watermark.detection import Detection
from playground import Playground
from playground.ui.compare.components import QUICK, Parts, visitor
from playground.ui.compare.runs import Runs
from playground.ui.shared import html
from playground.ui.shared.job_controls import WORKING, Bench, Drawn, bench, lab_of
from playground.ui.shared.jobs import Jobs, Tell
from playground.ui.shared.messages import spoken
from playground.ui.shared.model_loading import Labs
from playground.watermarks.attacks.registry import Stopped
from playground.watermarks.human_texts import passages
from playground.watermarks.text_generation import PROMPT_TOKENS

_WHAT = (
    "The model goes on from the same words twice, with the same seed: once with a watermark "
    "(lefthash, a quarter of all tokens green), once without. Can you tell which is which? A "
    "detector that knows the key can."
)
_LENGTH = 50  # tokens of each text
_THRESHOLD = 3.0
_MOST = 4  # visitors at once
_BIASES = [("bias 4: strong", 4.0), ("bias 2: as usual", 2.0), ("bias 1: weak", 1.0)]
_SIDES = ("A", "B")


class Round(NamedTuple):
    """Two texts and which of them is marked: 0 or 1."""

    model: str
    texts: tuple[tuple[int, ...], tuple[int, ...]]
    marked: int


class Tally(NamedTuple):
    """How a visitor has done so far."""

    right: int = 0
    rounds: int = 0

    @property
    def words(self) -> str:
        """The score, and what chance would have given."""
        if not self.rounds:
            return ""
        noun = "guess" if self.rounds == 1 else "guesses"
        return (
            f"{self.right} of {self.rounds} {noun} right; tossing a coin gets {self.rounds / 2:g}."
        )


@dataclass(frozen=True)
class Game:
    """The parts of the section; ``round`` and ``tally`` stay on the server."""

    bias: gr.Radio
    bench: Bench
    prompt: gr.Textbox
    texts: tuple[gr.Textbox, ...]
    guesses: tuple[gr.Button, ...]
    verdict: gr.HTML
    tally_words: gr.Markdown
    round: gr.State
    tally: gr.State

    @property
    def outputs(self) -> list[Any]:
        """What a new round changes."""
        own = [self.prompt, *self.texts, *self.guesses, self.verdict, self.round]
        return [*self.bench.outputs, *own]


def section() -> Game:
    """The section."""
    gr.Markdown(_WHAT, elem_classes="summary")
    bias = gr.Radio(_BIASES, value=2.0, label="How strong the mark is", elem_id="guess-bias")
    buttons = bench("guess", "New round")
    prompt = gr.Textbox(
        label="Both go on from", interactive=False, visible=False, elem_id="guess-prompt"
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
                    f"{side} is marked", size="sm", visible=False, elem_id=f"guess-{side}"
                )
            texts.append(text)
            guesses.append(button)
    verdict = gr.HTML(elem_id="guess-verdict", elem_classes="lab-told", padding=False)
    tally = gr.Markdown(elem_id="guess-tally")
    return Game(
        *(bias, buttons, prompt, tuple(texts), tuple(guesses), verdict, tally),
        *(gr.State(None), gr.State(Tally())),
    )


def connect(parts: Parts, section: Game, labs: Labs, limits: Limits, runs: Runs) -> None:
    """Connect the section."""
    jobs = Jobs("a round", _MOST)
    length = min(_LENGTH, limits.max_new_tokens)

    def new(bias: float, loaded: str, request: gr.Request) -> Iterator[Drawn]:
        steps = _dealt(section, jobs, labs, (loaded, bias, length), visitor(request))
        yield from section.bench.run(steps)

    begin = section.bench.begin[0]
    begin.click(new, [section.bias, parts.loaded], section.outputs, **WORKING)
    jobs.stops_with(section.bench.stop)
    kept = [section.round, section.tally]
    told = [*section.guesses, section.bench.progress, section.verdict, section.tally_words, *kept]
    for side, button in enumerate(section.guesses):
        button.click(_guessing(section, labs, side), kept, told, **QUICK)


def _guessing(section: Game, labs: Labs, side: int) -> Any:
    @spoken
    def guess(round: Round | None, tally: Tally) -> Drawn:
        if round is None:
            raise PlaygroundError("this round is over; begin another one")
        lab = labs.lab(round.model)
        found = [
            watermark.detect(lab.model, ids, z_threshold=_THRESHOLD, limits=lab.limits)
            for ids in round.texts
        ]
        now = Tally(tally.right + (side == round.marked), tally.rounds + 1)
        return {
            **{button: gr.Button(interactive=False) for button in section.guesses},
            **section.bench.say(""),
            section.verdict: _verdict(found, round.marked, side),
            section.tally_words: now.words,
            section.round: None,
            section.tally: now,
        }

    return guess


def _dealt(
    section: Game, jobs: Jobs, labs: Labs, asked: tuple[str, float, int], visitor: str
) -> Iterator[Drawn]:
    """A new round: how far the two texts are, then both of them."""
    loaded, bias, length = asked
    if bias not in dict(_BIASES).values():
        raise PlaygroundError(f"there is no bias {bias!r} in this game")
    lab = lab_of(labs, loaded)
    prompt = _opening(lab)
    seed, marked = secrets.randbelow(2**31), secrets.randbelow(2)
    plain = {"seed": seed, "max_new_tokens": length, "min_new_tokens": length}
    with_mark = {**plain, "watermarking_config": {"bias": bias}}
    choices = [("sample", with_mark if side == marked else plain) for side in range(2)]

    def work(stop: threading.Event, tell: Tell) -> None:
        for update in lab.stream(prompt, choices, stop=stop):
            tell(update)

    yield {
        **{text: gr.Textbox(value="", visible=True) for text in section.texts},
        **{button: gr.Button(visible=True, interactive=False) for button in section.guesses},
        section.prompt: gr.Textbox(value=prompt, visible=True),
        section.verdict: "",
        section.round: None,
    }
    traces: dict[int, Trace] = {}
    written = 0
    for news in jobs.follow(visitor, work):
        # Both together: how fast each of them comes is nobody's business before the guess.
        written += sum(len(update.steps) for update in news if isinstance(update, Update))
        traces |= {update.run: update.trace for update in news if update.trace}
        yield section.bench.say(f"{written} of {2 * length} tokens", written, 2 * length)
    yield _open(section, lab, (_ids(traces[0]), _ids(traces[1])), marked)


def _open(
    section: Game, lab: Playground, texts: tuple[tuple[int, ...], tuple[int, ...]], marked: int
) -> Drawn:
    """A round that waits for a guess."""
    shown = zip(section.texts, texts, strict=True)
    return {
        **section.bench.say("Which one is marked?"),
        **{place: lab.speller.text(ids) for place, ids in shown},
        **{button: gr.Button(interactive=True) for button in section.guesses},
        section.round: Round(lab.model.name, texts, marked),
    }


def _ids(trace: Trace) -> tuple[int, ...]:
    if trace.stop.rule == "cancelled":
        raise Stopped
    if trace.error:
        raise PlaygroundError(trace.error)
    return trace.sequences[0].token_ids


def _opening(lab: Playground) -> str:
    """The first words of a human-written text."""
    ids = lab.speller.ids(secrets.choice(passages()).text)
    return lab.speller.text(ids[:PROMPT_TOKENS], fresh=True)


def _verdict(found: list[Detection], marked: int, guessed: int) -> str:
    """Whether the guess was right, what a detector says, and why: the tokens in their colours."""
    right = "Right" if guessed == marked else "Wrong"
    score, other = found[marked], found[1 - marked]
    sure = "" if score.verdict == "marked" else " Here the detector would not be sure either."
    words = (
        f"{right}: {_SIDES[marked]} is marked. Of its scored tokens {score.green_fraction:.0%} are"
        f" green, of the other's {other.green_fraction:.0%}; chance gives {score.chance.mean:.0%}."
        f"{sure}"
    )
    rows = [
        [
            f"{side}, marked" if place == marked else side,
            f"{one.z_score:.2f}",
            html.probability(one.exact_p),
            one.verdict,
            f"{one.green_tokens} of {one.tokens_scored}",
        ]
        for place, (side, one) in enumerate(zip(_SIDES, found, strict=True))
    ]
    head = ("", "z", "exact p", f"verdict at z > {_THRESHOLD:g}", "green tokens")
    texts = "".join(
        html.coloured(side, [(token.text, token.verdict) for token in one.tokens])
        for side, one in zip(_SIDES, found, strict=True)
    )
    return html.words(words) + html.table("What a detector says", head, rows) + texts
