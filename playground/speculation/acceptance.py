"""What makes acceptance high or low: how sure the target is, how sure the drafter was, and how hot
the drawing is.

Knows drafted tokens that were judged. Refuses to explain by anything that was not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean
from typing import Any

from engine.prompt import Chat
from engine.trace import Trace
from engine.trace.rounds import Drafted, Share, rounds
from playground.lab import Playground
from playground.speculation.drafters import Drafter
from playground.speculation.race import Lane, Stop, race

ENTROPIES = (0.5, 1.0, 2.0, 3.0)  # nats, where bins end
CONFIDENCES = (0.2, 0.4, 0.6, 0.8)  # q, where bins end
TEMPERATURES = (0.3, 0.6, 1.0, 1.5)


@dataclass(frozen=True)
class Bin:
    """Drafted tokens with a number from ``low`` up to ``high`` (None: no end), and what became of
    them."""

    low: float
    high: float | None
    share: Share


@dataclass(frozen=True)
class AtTemperature:
    """How drafts fared where tokens were drawn this hot; ``entropy`` is the mean of the target's
    own before each judged token."""

    temperature: float
    share: Share
    compression: float | None
    entropy: float | None


@dataclass(frozen=True)
class Progress:
    """How far a comparison of temperatures has come; ``over`` with the last word."""

    done: int
    total: int
    found: tuple[AtTemperature, ...]
    over: bool = False


def by_entropy(traces: Sequence[Trace], ends: Sequence[float] = ENTROPIES) -> tuple[Bin, ...]:
    """How often drafted tokens were kept, by how undecided the target was before them."""
    return _binned(judged(traces), lambda one: one.entropy, ends)


def by_confidence(traces: Sequence[Trace], ends: Sequence[float] = CONFIDENCES) -> tuple[Bin, ...]:
    """The same by how probable the drafter found them, where it says so."""
    return _binned(judged(traces), lambda one: one.q, ends)


def judged(traces: Sequence[Trace]) -> tuple[Drafted, ...]:
    """The drafted tokens that the target decided about."""
    told = chain.from_iterable(rounds(trace) for trace in traces)
    return tuple(one for each in told for one in each.drafted if one.judged)


def temperatures(
    lab: Playground,
    prompt: str | Chat,
    drafter: Drafter,
    asked: Sequence[float] = TEMPERATURES,
    *,
    stop: Stop | None = None,
    **shared: Any,
) -> Iterator[Progress]:
    """Let a drafter draw at several temperatures, one run after the other."""
    found: list[AtTemperature] = []
    for temperature in asked:
        settings = {**drafter.settings, "do_sample": True, "temperature": temperature}
        lane: Lane | None = None
        one = replace(drafter, settings=settings)
        for news in race(lab, prompt, [one], stop=stop, **shared):
            lane = news.lane or lane
        if lane is None or lane.trace is None or lane.trace.stop.rule == "cancelled":
            break
        found.append(_at(temperature, lane.trace, lane))
        yield Progress(len(found), len(asked), tuple(found))
    yield Progress(len(found), len(asked), tuple(found), over=True)


def _at(temperature: float, trace: Trace, lane: Lane) -> AtTemperature:
    decided = judged([trace])
    told = [one.entropy for one in decided if one.entropy is not None]
    share = Share(sum(one.verdict == "accepted" for one in decided), len(decided))
    compression = lane.accounting.compression if lane.accounting else None
    return AtTemperature(temperature, share, compression, fmean(told) if told else None)


def _binned(
    decided: Sequence[Drafted], number: Callable[[Drafted], float | None], ends: Sequence[float]
) -> tuple[Bin, ...]:
    bins = []
    for low, high in zip((0.0, *ends), (*ends, None), strict=True):
        inside = [
            one
            for one in decided
            if (value := number(one)) is not None
            and value >= low
            and (high is None or value < high)
        ]
        kept = sum(one.verdict == "accepted" for one in inside)
        bins.append(Bin(low, high, Share(kept, len(inside))))
    return tuple(bins)
