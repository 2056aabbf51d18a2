"""Somebody's own decoding: a folder with ``custom_generate/generate.py``, or a Python callable, in
the form transformers gives both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine.errors import PlaygroundError
from engine.interop import recipes
from engine.interop.capture import KEPT, Sighting, Text
from engine.run import Run
from engine.settings import setting
from engine.strategy import Decoding, strategy
from engine.trace import Stop

MOMENT = 0.02  # seconds to wait for news, while others who are compared wait too


@dataclass(frozen=True)
class Params:
    """Whose decoding, and what to tell it."""

    custom_generate: Any = setting(
        None,
        "A folder that holds custom_generate/generate.py; in Python, also a function.",
        kind=object,
    )
    arguments: Any = setting(None, 'Its own arguments, such as {"left_padding": 2}.', kind=object)

    def __post_init__(self) -> None:
        """Refuse what is no recipe."""
        given = self.custom_generate
        if not callable(given) and not (isinstance(given, str) and given):
            raise PlaygroundError(
                f"custom_generate is {given!r}; it must be a folder that holds"
                " custom_generate/generate.py, or in Python a function"
            )
        if self.arguments is not None and not isinstance(self.arguments, Mapping):
            raise PlaygroundError(
                f"arguments is {self.arguments!r}; it must be names and values, as in"
                ' {"left_padding": 2}'
            )


@strategy("custom", order=14, params=Params, foreign=True)
def custom(run: Run, params: Params) -> Decoding:
    """Decodes with code of your own, and shows what of it could be seen.

    What the code asks of the model and of the processors is captured while it runs. Tokens it took
    in other ways are marked as not captured.
    """
    given, arguments = params.custom_generate, params.arguments or {}
    if callable(given):
        witness = run.foreign.watch(given, arguments)
    else:
        witness = run.foreign.watch_raw(recipes.load(given), arguments)
    story = _Story(run)
    witness.start()
    try:
        while not witness.over:
            if sighting := witness.sighting(MOMENT):
                story.see(sighting)
            yield [(run.root,)]  # known already: nothing is evaluated, the others get their turn
        for sighting in witness.unprocessed():
            story.see(sighting)
        if witness.error is not None:
            raise PlaygroundError(
                f"the recipe failed: {type(witness.error).__name__}: {witness.error}"
            )
        story.end(*returned(witness.result, run))
    finally:
        witness.stop()


def returned(result: Any, run: Run) -> tuple[list[list[int]], list[float | None]]:
    """The new tokens of every sequence a recipe returned, and their scores where it has some."""
    sequences = getattr(result, "sequences", result)
    if not isinstance(sequences, Tensor) or sequences.dim() != 2:
        raise PlaygroundError(
            f"the recipe returned {type(result).__name__}; it must be a tensor of token ids, one"
            " row a text, or a transformers output with such sequences"
        )
    texts = []
    for row in sequences[:, len(run.root.ids) :].tolist():
        ends = [place for place, token in enumerate(row) if token in run.end_tokens]
        texts.append(row[: ends[0] + 1] if ends else row)
    scores = getattr(result, "sequences_scores", None)
    return texts, [None] * len(texts) if scores is None else scores.tolist()


class _Story:
    """The steps of a text, told as sightings show them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._prompt = tuple(run.root.ids.tolist())
        self._seen: dict[Text, Sighting] = {}
        self._unseen: set[int] = set()  # steps nobody knows a distribution of
        self._missed = 0
        self._charged = (0, 0)

    def see(self, sighting: Sighting) -> None:
        """A text was looked at: so its last token had been taken."""
        text, (passes, tokens) = sighting.text, self._charged
        self._run.recorder.charge(sighting.passes - passes, sighting.tokens - tokens)
        self._charged = (sighting.passes, sighting.tokens)
        if text[: len(self._prompt)] != self._prompt:
            return
        step = self._told(text)
        if step is not None:
            self._run.show([step])
        self._seen[text] = sighting
        if len(self._seen) > KEPT:
            del self._seen[next(iter(self._seen))]

    def end(self, texts: list[list[int]], scores: list[float | None]) -> None:
        """The texts the code returned, new tokens only."""
        ends = []
        for tokens, score in zip(texts, scores, strict=True):
            self._missed = 0
            step = self._told((*self._prompt, *tokens))
            if step is None:
                raise PlaygroundError("the recipe returned no new token")
            ends.append((step, score, self._stop(tokens)))
        self._run.finish(ends, ends[0][2])

    def _stop(self, tokens: list[int]) -> Stop:
        [rule] = self._run.ended([tokens])
        why = rule or Stop("recipe", "it returned")
        if not self._missed:
            return why
        missed = f"{self._missed} of {len(tokens)} tokens not captured"
        return Stop(why.rule, f"{why.detail}; {missed}" if why.detail else missed)

    def _told(self, text: Text) -> int | None:
        """Tell of every token of a text that was not told of yet; gives the last one's step."""
        step: int | None = None
        for end in range(len(self._prompt), len(text)):
            known = self._run.recorder.step_at(step, text[end])
            sighting = self._seen.get(text[:end])
            if known is None or (sighting and known in self._unseen):
                known = self._run.foreign.tell(step, text[end], sighting)
                (self._unseen.discard if sighting else self._unseen.add)(known)
            self._missed += known in self._unseen
            step = known
        return step
