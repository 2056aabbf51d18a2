"""Does drafting change what is drawn? Many short texts, counted against their exact probabilities.

Speculative sampling is to give each text exactly as often as plain sampling does. A lab's own model
and drafter draw a few hundred texts of two or three tokens, several in every pass, with a small
``top_k`` so that few texts are possible; what plain sampling gives each of these is computed, not
counted, so only one side has chance in it. Knows the test and what it can see. Refuses to know how
drafts are judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from engine.errors import PlaygroundError
from engine.prompt import Chat
from engine.trace import Token, Trace
from engine.trace.rounds import rounds
from playground.lab import Playground
from playground.speculation import chi_square
from playground.speculation.drafters import Drafter, plain_baseline
from playground.speculation.race import Stop

SIGNIFICANCE = 0.001  # how often the test calls a right rule wrong
DRAWS, LENGTH, TOP_K = 300, 2, 6
LATE = {"medusa": 3}  # heads draft from the second token on, and one place is the model's own
MOST_DRAWS = 5_000
_EXACT = "computing the exact odds"
_DRAWING = "drawing texts"

Text = tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """A text that may be drawn: how often that was expected, and how often it was."""

    tokens: tuple[Token, ...]
    probability: float
    expected: float
    counted: int


@dataclass(frozen=True)
class DistributionCheck:
    """What the test found. ``judged`` counts the drafted tokens that were judged in these draws and
    ``accepted`` those kept: with none the test says nothing about drafts.

    ``caught`` has the odds that a wrong rule sets off the alarm, for rules that draw so large a
    share of texts blindly from those possible; ``share`` is what is caught nine times of ten.
    """

    drafter: Drafter
    draws: int
    outcomes: tuple[Outcome, ...]
    pooled: int  # texts too rare to count alone
    statistic: float
    freedom: int
    p_value: float
    judged: int
    accepted: int
    caught: tuple[tuple[float, float], ...]
    share: float | None

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the right distribution."""
        return self.p_value >= SIGNIFICANCE

    @property
    def words(self) -> str:
        """The finding as a sentence."""
        how = f"chi-square {self.statistic:.1f} with {self.freedom} degrees of freedom"
        odds = f"a right rule gives one as large with probability {self.p_value:.3g}"
        found = "nothing speaks against" if self.passed else "this is not"
        said = f"{self.draws} draws, {how}: {odds}; {found} the model's own distribution."
        none = " No draft was judged in them, so this says nothing about drafts."
        return said + none * (not self.judged)


@dataclass(frozen=True)
class Progress:
    """How far the test has come; the last one has the result."""

    stage: str
    done: int
    total: int
    result: DistributionCheck | None = None


def check_distribution(
    lab: Playground,
    prompt: str | Chat,
    drafter: Drafter,
    *,
    draws: int = DRAWS,
    length: int | None = None,
    top_k: int = TOP_K,
    temperature: float = 1.0,
    seed: int = 0,
    stop: Stop | None = None,
) -> Iterator[Progress]:
    """Draw and count; tells how far it is, and ends with the result. Stopped, it has none.

    Without a ``length`` texts have two tokens, or as many as it takes for a draft to be judged.
    """
    if drafter.unavailable_reason:
        raise PlaygroundError(drafter.unavailable_reason)
    length = LATE.get(drafter.strategy, LENGTH) if length is None else length
    bounds = {"draws": (draws, 50, MOST_DRAWS), "length": (length, 1, 3), "top_k": (top_k, 2, 10)}
    for name, (value, low, high) in bounds.items():
        if not low <= value <= high:
            raise PlaygroundError(f"{name} is {value}; it must be from {low} to {high}")
    shaping = {"top_k": top_k, "temperature": temperature, "min_new_tokens": length}
    return _Work(lab, prompt, drafter, draws, length, shaping, seed, stop).run()


class _Stopped(Exception):
    """Somebody stopped the test."""


@dataclass(frozen=True)
class _Work:
    """One test under way."""

    lab: Playground
    prompt: str | Chat
    drafter: Drafter
    draws: int
    length: int
    shaping: Mapping[str, Any]
    seed: int
    stop: Stop | None

    def run(self) -> Iterator[Progress]:
        """The exact odds, then the draws."""
        try:
            exact, spelled = yield from self._exact()
            traces = yield from self._drawn()
        except _Stopped:
            return
        yield Progress("done", 1, 1, self._result(exact, spelled, traces))

    def _exact(self) -> Generator[Progress, None, tuple[dict[Text, float], dict[int, Token]]]:
        """Every text that may be drawn, with its probability under plain sampling."""
        known: dict[Text, float] = {(): 1.0}
        spelled: dict[int, Token] = {}
        for _ in range(self.length):
            longer: dict[Text, float] = {}
            for at, (text, probability) in enumerate(known.items()):
                self._check()
                yield Progress(_EXACT, at, len(known))
                for token, odds in self._following(text).items():
                    spelled[token.id] = token
                    longer[*text, token.id] = probability * odds
            known = longer
        return known, spelled

    def _following(self, text: Text) -> dict[Token, float]:
        """What plain sampling draws after a text."""
        # An end token is not allowed before the last place, wherever the run begins.
        shaping = {**self.shaping, "min_new_tokens": self.length - len(text)}
        id, settings = plain_baseline(self.lab, self.drafter, do_sample=True).choice
        choice = (id, {**settings, **shaping})
        [trace] = self.lab.compare(
            self.prompt, [choice], prefix=text, max_new_tokens=1, seed=self.seed
        )
        given = trace.steps[0].distribution if trace.steps else None
        if given is None:
            raise PlaygroundError(trace.error or "the model's distribution was not recorded")
        kept = {one.token: one.final for one in given.candidates if one.final > 0}
        total = sum(kept.values())  # but for rounding, 1
        return {token: final / total for token, final in kept.items()}

    def _drawn(self) -> Generator[Progress, None, list[Trace]]:
        traces: list[Trace] = []
        settings = {**self.drafter.settings, **self.shaping, "do_sample": True}
        seeds = iter(range(self.seed, self.seed + self.draws))
        while batch := list(islice(seeds, self.lab.limits.rows)):
            self._check()
            asked = [
                (self.prompt, (self.drafter.strategy, {**settings, "seed": one})) for one in batch
            ]
            for update in self.lab.stream_each(asked, stop=self.stop, max_new_tokens=self.length):
                if update.trace is not None:
                    traces.append(update.trace)
            failed = [trace for trace in traces[-len(batch) :] if trace.error]
            if failed:
                raise PlaygroundError(failed[0].error or "")
            self._check()
            yield Progress(_DRAWING, len(traces), self.draws)
        return traces

    def _check(self) -> None:
        if self.stop is not None and self.stop.is_set():
            raise _Stopped

    def _result(
        self, exact: Mapping[Text, float], spelled: Mapping[int, Token], traces: list[Trace]
    ) -> DistributionCheck:
        counts = Counter(trace.sequences[0].token_ids for trace in traces)
        drawn = len(traces)
        test = chi_square.chi_square(counts, exact, drawn)
        drafted = [one for trace in traces for each in rounds(trace) for one in each.drafted]
        outcomes = [
            Outcome(
                tuple(spelled.get(id) or self.lab.speller.token(id) for id in text),
                exact.get(text, 0.0),
                drawn * exact.get(text, 0.0),
                counts[text],
            )
            for text in sorted({*exact, *counts}, key=lambda text: -exact.get(text, 0.0))
        ]
        return DistributionCheck(
            drafter=self.drafter,
            draws=drawn,
            outcomes=tuple(outcomes),
            pooled=test.pooled,
            statistic=test.statistic,
            freedom=test.freedom,
            p_value=test.p_value,
            judged=sum(one.judged for one in drafted),
            accepted=sum(one.verdict == "accepted" for one in drafted),
            caught=tuple(
                (share, test.power(share, SIGNIFICANCE)) for share in (0.1, 0.2, 0.3, 0.5)
            ),
            share=test.detectable(0.9, SIGNIFICANCE),
        )
