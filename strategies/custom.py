"""Custom decoding code: a folder with ``custom_generate/generate.py``, or a Python function, in the
form that transformers' ``custom_generate`` has for both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine.errors import PlaygroundError
from engine.interop import recipes
from engine.interop.capture import KEPT, Capture, Text
from engine.run import Run
from engine.settings import setting
from engine.strategy import Decoding, strategy
from engine.trace import Stop

POLL = 0.02  # seconds to wait for a capture before the other runs get their turn


@dataclass(frozen=True)
class Params:
    """The code to run, and its arguments."""

    custom_generate: Any = setting(
        None,
        "A folder that contains custom_generate/generate.py; in Python, also a function.",
        kind=object,
    )
    arguments: Any = setting(
        None, 'Arguments for the code, for example {"left_padding": 2}.', kind=object
    )

    def __post_init__(self) -> None:
        """Reject anything that is not code, or not named arguments."""
        given = self.custom_generate
        if not callable(given) and not (isinstance(given, str) and given):
            raise PlaygroundError(
                f"custom_generate is {given!r}; it must be a folder that contains"
                " custom_generate/generate.py, or in Python a function"
            )
        if self.arguments is not None and not isinstance(self.arguments, Mapping):
            raise PlaygroundError(
                f"arguments is {self.arguments!r}; it must be names and values, for example"
                ' {"left_padding": 2}'
            )


@strategy("custom", order=14, params=Params, runs_user_code=True)
def custom(run: Run, params: Params) -> Decoding:
    """Runs your own decoding code and shows what could be captured of it.

    The model's logits and the processors' scores are captured while the code runs. What could not
    be captured is marked as not captured.
    """
    given, arguments = params.custom_generate, params.arguments or {}
    if callable(given):
        call = run.code_capture.of_function(given, arguments)
    else:
        call = run.code_capture.of_recipe(recipes.load(given), arguments)
    steps = _Steps(run)
    call.start()
    try:
        while not call.over:
            if capture := call.next(POLL):
                steps.add(capture)
            yield [(run.root,)]  # evaluated already: costs nothing and lets other runs continue
        for capture in call.unprocessed():
            steps.add(capture)
        if call.error is not None:
            raise PlaygroundError(f"the recipe failed: {type(call.error).__name__}: {call.error}")
        steps.finish(*_returned(call.result, run))
    finally:
        call.stop()


def _returned(result: Any, run: Run) -> tuple[list[list[int]], list[float | None]]:
    """The new tokens of every sequence that a recipe returned, and their scores if it has some."""
    sequences = getattr(result, "sequences", result)
    if not isinstance(sequences, Tensor) or sequences.dim() != 2:
        raise PlaygroundError(
            f"the recipe returned {type(result).__name__}; it must return a tensor of token ids,"
            " one row per sequence, or a transformers output with such sequences"
        )
    texts = []
    for row in sequences[:, len(run.root.ids) :].tolist():
        ends = [place for place, token in enumerate(row) if token in run.end_tokens]
        texts.append(row[: ends[0] + 1] if ends else row)
    scores = getattr(result, "sequences_scores", None)
    return texts, [None] * len(texts) if scores is None else scores.tolist()


class _Steps:
    """Turns captures into steps of the trace."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._prompt = tuple(run.root.ids.tolist())
        self._captures: dict[Text, Capture] = {}
        self._uncaptured: set[int] = set()  # steps without a distribution
        self._missed = 0
        self._charged = (0, 0)

    def add(self, capture: Capture) -> None:
        """Record a text that the code has reached, and keep what was captured after it."""
        text, (passes, tokens) = capture.text, self._charged
        self._run.recorder.charge(capture.passes - passes, capture.tokens - tokens)
        self._charged = (capture.passes, capture.tokens)
        if text[: len(self._prompt)] != self._prompt:
            return
        step = self._record(text)
        if step is not None:
            self._run.show([step])
        earlier = self._captures.get(text)
        if earlier and capture.logits is None:
            capture = capture._replace(logits=earlier.logits)
        self._captures[text] = capture
        if len(self._captures) > KEPT:
            del self._captures[next(iter(self._captures))]

    def finish(self, texts: list[list[int]], scores: list[float | None]) -> None:
        """End the run with the sequences that the code returned, new tokens only."""
        ends = []
        for tokens, score in zip(texts, scores, strict=True):
            self._missed = 0
            step = self._record((*self._prompt, *tokens))
            if step is None:
                raise PlaygroundError("the recipe returned no new token")
            ends.append((step, score, self._stop(tokens)))
        self._run.finish(ends, ends[0][2])

    def _stop(self, tokens: list[int]) -> Stop:
        [rule] = self._run.stops_of_texts([tokens])
        why = rule or Stop("recipe", "it returned")
        if not self._missed:
            return why
        missed = f"{self._missed} of {len(tokens)} tokens not captured"
        return Stop(why.rule, f"{why.detail}; {missed}" if why.detail else missed)

    def _record(self, text: Text) -> int | None:
        """Record the tokens of a text that the trace does not have yet; returns the last step."""
        step: int | None = None
        for end in range(len(self._prompt), len(text)):
            known = self._run.recorder.step_at(step, text[end])
            capture = self._captures.get(text[:end])
            if known is None or (capture and known in self._uncaptured):
                known = self._run.code_capture.record(step, text[end], capture)
                (self._uncaptured.discard if capture else self._uncaptured.add)(known)
            self._missed += known in self._uncaptured
            step = known
        return step
