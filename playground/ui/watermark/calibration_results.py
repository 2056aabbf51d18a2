"""A calibration as the page shows it: a table and four figures.

Knows the record of a calibration, and how sure each of its rates is. Refuses to measure.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from playground.ui.shared import html
from playground.watermarks import roc
from playground.watermarks.calibration_result import AtLength, Calibration
from playground.watermarks.roc import OperatingPoint, Rate
from visualizers.watermark import roc as roc_figure
from visualizers.watermark.cost import BiasCost, WatermarkCost, watermark_cost
from visualizers.watermark.power import (
    DetectionPower,
    LengthNeeded,
    RateAtLength,
    watermark_power,
)
from visualizers.watermark.scores import ScoreSamples, watermark_scores

FIGURES = ("roc", "scores", "power", "cost")
TOO_FEW = "too few texts to say"


def table(found: Calibration) -> str:
    """How many texts are found at every length, and at which rate of false alarms."""
    asked = [one.asked for one in found.by_length[-1].operating]
    head = ["tokens", "mean z", f"found at z > {found.threshold:g}", "false alarms", "AUC"]
    head += [f"found at {_percent(rate)} false alarms" for rate in asked]
    return html.table("Rates by length", head, [_row(told) for told in found.by_length])


def sentence(found: Calibration) -> str:
    """What was measured, and what the table cannot say."""
    spec = found.spec
    needed = ", ".join(
        f"{one.power:.0%} from {one.length} tokens on"
        if one.length
        else f"{one.power:.0%} not within {spec['length']} tokens"
        for one in found.needed
    )
    return (
        f"{found.model}, {spec['scheme']}: {spec['texts']} marked texts of {spec['length']} tokens"
        f" against {found.human_scores} scores of {found.human_texts} human-written texts. In"
        f" brackets: where the true rate lies 95 times in 100. Found: {needed}. Read again as mere"
        f" text, {rate(found.as_text)} are found. Done in {found.seconds:.1f} s."
    )


def rate(told: Rate) -> str:
    """A share with its interval."""
    return f"{_percent(told.share)} ({_percent(told.low)} to {_percent(told.high)})"


def figures(found: Calibration) -> list[Any]:
    """The four, in the order of `FIGURES`."""
    human = [sample.scores[-1] for sample in found.human]
    # The texts that were asked for come first; those of other biases tell of the cost alone.
    marked = [sample.scores[-1] for sample in found.marked[: found.spec["texts"]]]
    return [
        _roc(found, len(marked)),
        watermark_scores(ScoreSamples(tuple(human), tuple(marked), found.threshold)),
        _power(found),
        _cost(found),
    ]


def _row(told: AtLength) -> list[str]:
    points = [_operating(one) for one in told.operating]
    rates_told = [rate(told.found), rate(told.false_alarms)]
    return [str(told.length), f"{told.mean:.2f}", *rates_told, f"{told.auc:.4f}", *points]


def _operating(one: OperatingPoint) -> str:
    return rate(one.true_positives) if one.resolved else TOO_FEW


def _percent(share: float) -> str:
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def _roc(found: Calibration, texts: int) -> Any:
    interval = cache(lambda count: roc.rate(count, texts))
    corners = []
    for one in found.roc:
        told = interval(round(one.true_positives * texts))
        place = (one.threshold, one.false_positives, one.true_positives)
        corners.append(roc_figure.RocPoint(*place, told.low, told.high))
    last = found.by_length[-1]
    operating = [
        roc_figure.OperatingPoint(
            one.asked,
            one.true_positives.share,
            one.true_positives.low,
            one.true_positives.high,
            one.resolved,
        )
        for one in last.operating
    ]
    return roc_figure.watermark_roc(
        roc_figure.RocCurve(tuple(corners), tuple(operating), last.auc, found.human_scores)
    )


def _power(found: Calibration) -> Any:
    at = tuple(
        RateAtLength(told.length, told.found.share, told.found.low, told.found.high)
        for told in found.by_length
    )
    needed = tuple(LengthNeeded(one.power, one.length) for one in found.needed)
    return watermark_power(DetectionPower(tuple(found.power), at, needed, found.threshold))


def _cost(found: Calibration) -> Any:
    costs = tuple(
        BiasCost(
            *(one.bias, one.texts, one.perplexity, one.low, one.high),
            *(one.mean, one.found.share),
        )
        for one in found.costs
    )
    return watermark_cost(WatermarkCost(costs))
