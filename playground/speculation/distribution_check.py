"""Checks that sampling with drafts follows the model's own distribution.

Speculative sampling must give each text as often as plain sampling does. The check samples a few
hundred texts of two or three tokens, with a small ``top_k`` so that few texts are possible, and
tests their counts against the exact probabilities, which are computed from the model.
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
from playground.speculation.chi_square import chi_square
from playground.speculation.drafters import Drafter, plain_baseline
from playground.stopping import Stop, Stopped, check_stop

SIGNIFICANCE = 0.001  # how often the test rejects a correct drafter
DRAWS, LENGTH, TOP_K = 300, 2, 6
# Heads draft from the second token on, and the first token of a round is the model's own.
LENGTHS = {"medusa": 3}
MOST_DRAWS = 5_000
_EXACT = "computing exact probabilities"
_SAMPLING = "sampling texts"

Text = tuple[int, ...]


@dataclass(frozen=True)
class Outcome:
    """A possible text with its probability, its expected count and its observed count."""

    tokens: tuple[Token, ...]
    probability: float
    expected: float
    counted: int


@dataclass(frozen=True)
class DistributionCheck:
    """The result of a check. ``verified`` counts the drafted tokens that were verified in these
    draws, ``accepted`` those accepted: without any, the check says nothing about drafts.

    ``power`` lists, for some shares, the probability that the test rejects a drafter which takes
    that share of its texts uniformly from the possible ones; ``detectable_share`` is the share that
    is detected with a probability of 0.9.
    """

    drafter: Drafter
    draws: int
    outcomes: tuple[Outcome, ...]
    pooled: int  # texts too rare for a cell of their own
    statistic: float
    freedom: int
    p_value: float
    verified: int
    accepted: int
    power: tuple[tuple[float, float], ...]
    detectable_share: float | None

    @property
    def passed(self) -> bool:
        """Whether the counts agree with the model's distribution."""
        return self.p_value >= SIGNIFICANCE

    @property
    def summary(self) -> str:
        """The result as a sentence."""
        test = f"chi-square {self.statistic:.1f} with {self.freedom} degrees of freedom"
        result = "consistent with" if self.passed else "not"
        text = (
            f"{self.draws} draws, {test}, p = {self.p_value:.3g}: {result} the model's own"
            " distribution."
        )
        return text if self.verified else f"{text} No draft was verified in these draws."


@dataclass(frozen=True)
class Progress:
    """The progress of a check; the last one has the result."""

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
    """Sample and count; the last progress has the result, unless ``stop`` was set.

    By default texts have as many tokens as a draft needs to be verified.
    """
    if drafter.unavailable_reason:
        raise PlaygroundError(drafter.unavailable_reason)
    length = LENGTHS.get(drafter.strategy, LENGTH) if length is None else length
    bounds = {"draws": (draws, 50, MOST_DRAWS), "length": (length, 1, 3), "top_k": (top_k, 2, 10)}
    for name, (value, low, high) in bounds.items():
        if not low <= value <= high:
            raise PlaygroundError(f"{name} is {value}; it must be from {low} to {high}")
    shaping = {"top_k": top_k, "temperature": temperature, "min_new_tokens": length}
    return _Check(lab, prompt, drafter, draws, length, shaping, seed, stop).run()


@dataclass(frozen=True)
class _Check:
    """A running check."""

    lab: Playground
    prompt: str | Chat
    drafter: Drafter
    draws: int
    length: int
    shaping: Mapping[str, Any]
    seed: int
    stop: Stop | None

    def run(self) -> Iterator[Progress]:
        try:
            exact, tokens = yield from self._exact()
            traces = yield from self._sample()
        except Stopped:
            return
        yield Progress("done", 1, 1, self._result(exact, tokens, traces))

    def _exact(self) -> Generator[Progress, None, tuple[dict[Text, float], dict[int, Token]]]:
        """Every possible text with its probability under plain sampling."""
        known: dict[Text, float] = {(): 1.0}
        tokens: dict[int, Token] = {}
        for _ in range(self.length):
            longer: dict[Text, float] = {}
            for at, (text, probability) in enumerate(known.items()):
                check_stop(self.stop)
                yield Progress(_EXACT, at, len(known))
                for token, share in self._following(text).items():
                    tokens[token.id] = token
                    longer[*text, token.id] = probability * share
            known = longer
        return known, tokens

    def _following(self, text: Text) -> dict[Token, float]:
        """The distribution of the next token under plain sampling."""
        # No end token before the last position, also when the run starts after a prefix.
        shaping = {**self.shaping, "min_new_tokens": self.length - len(text)}
        id, settings = plain_baseline(self.lab, self.drafter, do_sample=True).choice
        [trace] = self.lab.compare(
            self.prompt,
            [(id, {**settings, **shaping})],
            prefix=text,
            max_new_tokens=1,
            seed=self.seed,
        )
        given = trace.steps[0].distribution if trace.steps else None
        if given is None:
            raise PlaygroundError(trace.error or "the model's distribution was not recorded")
        kept = {item.token: item.final for item in given.candidates if item.final > 0}
        total = sum(kept.values())  # 1 up to rounding
        return {token: final / total for token, final in kept.items()}

    def _sample(self) -> Generator[Progress, None, list[Trace]]:
        traces: list[Trace] = []
        settings = {**self.drafter.settings, **self.shaping, "do_sample": True}
        seeds = iter(range(self.seed, self.seed + self.draws))
        while batch := list(islice(seeds, self.lab.limits.rows)):
            check_stop(self.stop)
            runs = [
                (self.prompt, (self.drafter.strategy, {**settings, "seed": seed})) for seed in batch
            ]
            for update in self.lab.stream_each(runs, stop=self.stop, max_new_tokens=self.length):
                if update.trace is not None:
                    traces.append(update.trace)
            failed = [trace for trace in traces[-len(batch) :] if trace.error]
            if failed:
                raise PlaygroundError(failed[0].error or "")
            check_stop(self.stop)
            yield Progress(_SAMPLING, len(traces), self.draws)
        return traces

    def _result(
        self, exact: Mapping[Text, float], tokens: Mapping[int, Token], traces: list[Trace]
    ) -> DistributionCheck:
        counts = Counter(trace.sequences[0].token_ids for trace in traces)
        draws = len(traces)
        test = chi_square(counts, exact, draws)
        drafted = [token for trace in traces for each in rounds(trace) for token in each.drafted]
        outcomes = [
            Outcome(
                tuple(tokens.get(id) or self.lab.token_decoder.token(id) for id in text),
                exact.get(text, 0.0),
                draws * exact.get(text, 0.0),
                counts[text],
            )
            for text in sorted({*exact, *counts}, key=lambda text: -exact.get(text, 0.0))
        ]
        return DistributionCheck(
            drafter=self.drafter,
            draws=draws,
            outcomes=tuple(outcomes),
            pooled=test.pooled,
            statistic=test.statistic,
            freedom=test.freedom,
            p_value=test.p_value,
            verified=sum(token.verified for token in drafted),
            accepted=sum(token.verdict == "accepted" for token in drafted),
            power=tuple((share, test.power(share, SIGNIFICANCE)) for share in (0.1, 0.2, 0.3, 0.5)),
            detectable_share=test.detectable(0.9, SIGNIFICANCE),
        )
