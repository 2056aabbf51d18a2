"""What a calibration found: the scores of many texts, and what a detector is worth by them.

Knows numbers, and how they become JSON and CSV. Refuses to know models: what was measured is read
off samples that are there.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from playground.watermarks import roc as rates
from playground.watermarks.roc import OperatingPoint, Rate, RocPoint

FALSE_ALARMS = (0.01, 0.001)  # the rates at which true positives are told
POWERS = (0.5, 0.9, 0.99)  # the shares of marked texts whose needed length is told


@dataclass(frozen=True)
class Sample:
    """One text: its z-scores when it had each of the lengths asked for."""

    source: str  # of a human text, or of the prompt the model went on from
    scores: tuple[float, ...]
    bias: float | None = None  # that it was written with, where the scheme has one
    as_text: float | None = None  # z of the whole once it was decoded and encoded again
    surprisal: float | None = None  # nats a token under the model without a mark, on average


@dataclass(frozen=True)
class AtLength:
    """What the detector is worth on texts of one length."""

    length: int
    mean: float  # z of marked texts
    found: Rate  # marked texts above the threshold
    false_alarms: Rate  # human ones above it
    auc: float
    operating: tuple[OperatingPoint, ...]  # at each of the rates of false alarms


@dataclass(frozen=True)
class Needed:
    """From which length on this share of marked texts is found; None: from a greater one."""

    power: float
    length: int | None


@dataclass(frozen=True)
class Cost:
    """What a mark costs in perplexity under the model that has none, with a 95 % interval."""

    bias: float | None
    texts: int
    perplexity: float
    low: float
    high: float
    mean: float  # z of whole texts
    found: Rate


@dataclass(frozen=True)
class Calibration:
    """Everything a calibration found."""

    model: str
    spec: dict[str, Any]
    threshold: float
    human_texts: int
    human_scores: int  # each text may be scored under several keys
    by_length: tuple[AtLength, ...]
    roc: tuple[RocPoint, ...]  # at the greatest length
    power: tuple[float, ...]  # share of marked texts found after 1, 2, 3 … tokens
    needed: tuple[Needed, ...]
    as_text: Rate  # marked texts found once they were decoded and encoded again
    costs: tuple[Cost, ...]
    seconds: float  # the writing and scoring took, this time: what was kept costs nothing
    human: tuple[Sample, ...]
    marked: tuple[Sample, ...]

    def to_json(self) -> str:
        """All of it."""
        return json.dumps(asdict(self))

    def to_csv(self) -> str:
        """One row for each text and length."""
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(["kind", "source", "bias", "length", "z_score", "perplexity"])
        for kind, samples in (("human", self.human), ("marked", self.marked)):
            for sample in samples:
                cost = "" if sample.surprisal is None else math.exp(sample.surprisal)
                for told, z in zip(self.by_length, sample.scores, strict=True):
                    writer.writerow([kind, sample.source, sample.bias, told.length, z, cost])
        return file.getvalue()


@dataclass(frozen=True)
class Progress:
    """How far a calibration has come; the last one has the result."""

    stage: str
    done: int
    total: int
    unit: str
    result: Calibration | None = None


def at_length(
    length: int, null: Sequence[float], marked: Sequence[float], threshold: float
) -> AtLength:
    """Hold the scores of marked texts of a length against those of human ones."""
    return AtLength(
        length=length,
        mean=fmean(marked),
        found=rates.above(marked, threshold),
        false_alarms=rates.above(null, threshold),
        auc=rates.auc(null, marked),
        operating=tuple(rates.operating(null, marked, asked) for asked in FALSE_ALARMS),
    )


def cost(samples: Sequence[Sample], threshold: float) -> Cost:
    """What texts written with one bias cost; the interval takes their means for normal."""
    surprisals = [sample.surprisal or 0.0 for sample in samples]
    scores = [sample.scores[-1] for sample in samples]
    mean, margin = fmean(surprisals), 1.96 * stdev(surprisals) / math.sqrt(len(samples))
    return Cost(
        bias=samples[0].bias,
        texts=len(samples),
        perplexity=math.exp(mean),
        low=math.exp(mean - margin),
        high=math.exp(mean + margin),
        mean=fmean(scores),
        found=rates.above(scores, threshold),
    )
