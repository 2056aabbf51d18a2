"""The result of a calibration: scores of many texts and the rates computed from them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any

from playground.watermarks import roc
from playground.watermarks.roc import OperatingPoint, Rate, RocPoint

FALSE_ALARMS = (0.01, 0.001)  # false positive rates at which true positives are reported
POWERS = (0.5, 0.9, 0.99)  # detection rates for which the required length is reported


@dataclass(frozen=True)
class Sample:
    """One text: its z-scores at each of the lengths."""

    source: str  # of a human-written text, or of the prompt of a generated one
    scores: tuple[float, ...]
    bias: float | None = None  # it was generated with, if the scheme has one
    as_text: float | None = None  # z-score after decoding and encoding again
    surprisal: float | None = None  # mean under the unmarked model, in nats per token


@dataclass(frozen=True)
class AtLength:
    """The detection rates on texts of one length."""

    length: int
    mean: float  # z-score of marked texts
    found: Rate  # of marked texts above the threshold
    false_alarms: Rate  # of human-written ones above it
    auc: float
    operating: tuple[OperatingPoint, ...]  # at each of FALSE_ALARMS


@dataclass(frozen=True)
class Needed:
    """The length from which on this share of marked texts is found; None if it is greater."""

    power: float
    length: int | None


@dataclass(frozen=True)
class Cost:
    """The perplexity under the unmarked model, with a 95 % confidence interval."""

    bias: float | None
    texts: int
    perplexity: float
    low: float
    high: float
    mean: float  # z-score of whole texts
    found: Rate


@dataclass(frozen=True)
class Calibration:
    """All results of a calibration."""

    model: str
    spec: dict[str, Any]
    threshold: float
    human_texts: int
    human_scores: int  # more than texts if there are several keys
    by_length: tuple[AtLength, ...]
    roc: tuple[RocPoint, ...]  # at the greatest length
    power: tuple[float, ...]  # share of marked texts found after 1, 2, 3 … tokens
    needed: tuple[Needed, ...]
    as_text: Rate  # of marked texts found after decoding and encoding again
    costs: tuple[Cost, ...]
    seconds: float  # this time; cached texts and scores take none
    human: tuple[Sample, ...]
    marked: tuple[Sample, ...]

    def to_json(self) -> str:
        """Everything as JSON."""
        return json.dumps(asdict(self))

    def to_csv(self) -> str:
        """CSV with one row per text and length."""
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(["kind", "source", "bias", "length", "z_score", "perplexity"])
        for kind, samples in (("human", self.human), ("marked", self.marked)):
            for sample in samples:
                cost = "" if sample.surprisal is None else math.exp(sample.surprisal)
                for row, z in zip(self.by_length, sample.scores, strict=True):
                    writer.writerow([kind, sample.source, sample.bias, row.length, z, cost])
        return file.getvalue()


@dataclass(frozen=True)
class Progress:
    """The progress of a calibration; the last one has the result."""

    stage: str
    done: int
    total: int
    unit: str
    result: Calibration | None = None


def at_length(
    length: int, null: Sequence[float], marked: Sequence[float], threshold: float
) -> AtLength:
    """Compare the scores of marked texts of one length with those of unmarked ones."""
    return AtLength(
        length=length,
        mean=fmean(marked),
        found=roc.above(marked, threshold),
        false_alarms=roc.above(null, threshold),
        auc=roc.auc(null, marked),
        operating=tuple(roc.operating(null, marked, target) for target in FALSE_ALARMS),
    )


def cost(samples: Sequence[Sample], threshold: float) -> Cost:
    """The perplexity of texts with one bias, with a normal confidence interval of the mean."""
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
        found=roc.above(scores, threshold),
    )
