"""How acceptance depends on the target's entropy, the drafter's confidence and the temperature."""

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
from playground.speculation.race import Lane, race
from playground.stopping import Stop

ENTROPIES = (0.5, 1.0, 2.0, 3.0)  # upper bounds of bins, in nats
CONFIDENCES = (0.2, 0.4, 0.6, 0.8)  # upper bounds of bins, in q
TEMPERATURES = (0.3, 0.6, 1.0, 1.5)


@dataclass(frozen=True)
class Bin:
    """The acceptance of drafted tokens with a value from ``low`` up to ``high`` (None: any)."""

    low: float
    high: float | None
    share: Share


@dataclass(frozen=True)
class AtTemperature:
    """Acceptance at one temperature; ``entropy`` is the target's mean at the verified tokens."""

    temperature: float
    share: Share
    compression: float | None
    entropy: float | None


@dataclass(frozen=True)
class Progress:
    """The progress of a comparison of temperatures; the last one is ``over``."""

    done: int
    total: int
    found: tuple[AtTemperature, ...]
    over: bool = False


def by_entropy(traces: Sequence[Trace], ends: Sequence[float] = ENTROPIES) -> tuple[Bin, ...]:
    """Acceptance by the target's entropy before each drafted token."""
    return _binned(verified_tokens(traces), lambda token: token.entropy, ends)


def by_confidence(traces: Sequence[Trace], ends: Sequence[float] = CONFIDENCES) -> tuple[Bin, ...]:
    """Acceptance by the drafter's probability q of each token, where it was recorded."""
    return _binned(verified_tokens(traces), lambda token: token.q, ends)


def verified_tokens(traces: Sequence[Trace]) -> tuple[Drafted, ...]:
    """The drafted tokens that the target accepted or rejected."""
    all_rounds = chain.from_iterable(rounds(trace) for trace in traces)
    return tuple(token for one in all_rounds for token in one.drafted if token.verified)


def temperatures(
    lab: Playground,
    prompt: str | Chat,
    drafter: Drafter,
    values: Sequence[float] = TEMPERATURES,
    *,
    stop: Stop | None = None,
    **shared: Any,
) -> Iterator[Progress]:
    """Sample with a drafter at several temperatures, one run after the other."""
    found: list[AtTemperature] = []
    for temperature in values:
        settings = {**drafter.settings, "do_sample": True, "temperature": temperature}
        lane: Lane | None = None
        for update in race(lab, prompt, [replace(drafter, settings=settings)], stop=stop, **shared):
            lane = update.lane or lane
        if lane is None or lane.trace is None or lane.trace.stop.rule == "cancelled":
            break
        found.append(_at(temperature, lane.trace, lane))
        yield Progress(len(found), len(values), tuple(found))
    yield Progress(len(found), len(values), tuple(found), over=True)


def _at(temperature: float, trace: Trace, lane: Lane) -> AtTemperature:
    decided = verified_tokens([trace])
    entropies = [token.entropy for token in decided if token.entropy is not None]
    share = Share(sum(token.verdict == "accepted" for token in decided), len(decided))
    compression = lane.accounting.compression if lane.accounting else None
    return AtTemperature(temperature, share, compression, fmean(entropies) if entropies else None)


def _binned(
    decided: Sequence[Drafted], number: Callable[[Drafted], float | None], ends: Sequence[float]
) -> tuple[Bin, ...]:
    bins = []
    for low, high in zip((0.0, *ends), (*ends, None), strict=True):
        inside = [
            token
            for token in decided
            if (value := number(token)) is not None
            and value >= low
            and (high is None or value < high)
        ]
        kept = sum(token.verdict == "accepted" for token in inside)
        bins.append(Bin(low, high, Share(kept, len(inside))))
    return tuple(bins)
