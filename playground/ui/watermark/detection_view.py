"""A detection as the view shows it: words and numbers, ready to be read.

Knows the record of a detection. Refuses to detect and to draw. Text of people and models leaves as
JSON and reaches the page as ``textContent`` alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from engine.watermark.detection import Detection, Layers, RoundTrip, TokenVerdict
from engine.watermark.statistics import Score
from engine.watermark.windows import Scan

_MOST_OF = 0.85  # of a text: a passage as long needs no frame
SHOWN = 3_000  # tokens that are coloured; the figures are of all

_WHY = {
    "context": "not scored: too little stands before it",
    "repeated": "not scored: its n-gram was counted before",
    "bos": "not scored: it starts the text",
    "eos": "not scored: the text had ended",
}


def nothing(words: str) -> str:
    """The view while there is no text."""
    return _json({"empty": words})


def refused(words: str) -> str:
    """The view where something was wrong with what was asked."""
    return _json({"error": words})


def detected(found: Detection, scan: Scan, name: str, notes: list[str]) -> str:
    """The view of a detection of the text that is called ``name``."""
    layered = found.layers is not None
    return _json(
        {
            "verdict": found.verdict,
            "reason": found.reason,
            "name": name,
            "notes": [*_trip(found.round_trip), _passage(scan), *notes],
            "counts": _counts(found),
            "layers": _layers(found.layers) if found.layers else [],
            "tokens": [_token(token, layered) for token in found.tokens[:SHOWN]],
            "more": max(0, len(found.tokens) - SHOWN),
            "best": _framed(found, scan),
            "layered": layered,
        }
    )


def _framed(found: Detection, scan: Scan) -> list[int] | None:
    """The marked passage, where it is not the whole text anyway."""
    best = scan.best
    if best is None or not scan.found or best.tokens_scored >= _MOST_OF * len(found.tokens):
        return None
    return [best.start, best.end]


def _counts(found: Detection) -> dict[str, Any]:
    """The figures, counted in every way there is: a column for each."""
    ways = {
        "all n-grams": found.with_repeats,
        "each n-gram once": found.without_repeats,
        "each draw once": found.independent,
    }
    if found.round_trip:
        ways["read again as text"] = found.round_trip.score
    green = "g above chance" if found.layers else "green"
    rows: list[tuple[str, Callable[[Score], str]]] = [
        ("tokens scored", lambda score: str(score.tokens_scored)),
        (green, lambda score: str(score.green_tokens)),
        (f"{green}, share", lambda score: f"{score.green_fraction:.1%}"),
        ("z-score", _z),
        ("p, normal curve", lambda score: _p(score, score.p_value)),
        ("p, exact", lambda score: _p(score, score.exact_p)),
    ]
    used = 1 if found.ignore_repeated else 0
    return {
        "ways": list(ways),
        "used": used,
        "rows": [[name, *(tell(score) for score in ways.values())] for name, tell in rows],
    }


def _z(score: Score) -> str:
    return f"{score.z_score:.2f}" if score.tokens_scored else "–"


def _p(score: Score, p: float) -> str:
    return small(p) if score.tokens_scored else "–"


def small(p: float) -> str:
    """A probability that may be tiny."""
    return f"{p:.3g}" if p >= 1e-300 else "< 1e-300"


def _layers(layers: Layers) -> list[list[str]]:
    """SynthID's two scores, each with what it must exceed at this length."""
    weighted = (layers.weighted_mean, layers.weighted_threshold, layers.weighted_z)
    plain = (layers.mean, layers.mean_threshold, layers.mean_z)
    return [
        ["score", "value", "chance gives", "must exceed", "z-score", "p"],
        *(
            [
                name,
                f"{value:.4f}",
                f"{layers.share:.4f}",
                f"{threshold:.4f}",
                f"{z:.2f}",
                small(p),
            ]
            for name, (value, threshold, z), p in (
                ("weighted mean", weighted, layers.weighted_p),
                ("mean", plain, layers.mean_p),
            )
        ),
    ]


def _trip(trip: RoundTrip | None) -> list[str]:
    if trip is None:
        return []
    if not trip.lost:
        return [
            f"Copied as text and read again, all {trip.tokens} tokens are the same: {trip.verdict}."
        ]
    return [
        f"Copied as text and read again, {trip.lost} of {trip.tokens} tokens are others: z is then "
        f"{trip.score.z_score:.2f}, {trip.verdict}."
    ]


def _passage(scan: Scan) -> str:
    best = scan.best
    if best is None:
        return "There is nothing to scan."
    where = f"tokens {best.start + 1} to {best.end}"
    odds = (
        f"chance does as well somewhere in such a text with probability {small(best.corrected_p)}"
    )
    lead = "A marked passage" if scan.found else "No passage stands out; the most unusual one"
    return f"{lead}: {where}, z {best.z_score:.2f}; {odds} ({scan.windows:,} windows)."


def _token(token: TokenVerdict, layered: bool) -> list[str]:
    """Its text, its class, and what to say when somebody points at it."""
    if token.verdict == "unscored":
        return [token.text, "unscored", _WHY[token.why or "context"]]
    if layered:
        side = "above" if token.verdict == "green" else "not above"
        ones = f"{sum(token.g_values)} of {len(token.g_values)} g-values are 1"
        return [token.text, token.verdict, f"{side} chance: {ones}, weighted {token.value:.3f}"]
    again = ", as its n-gram was before" if token.repeated else ""
    return [token.text, token.verdict, f"{token.verdict}{again}"]


def _json(told: dict[str, Any]) -> str:
    # Gradio warns about every value with a script tag in it; in JSON this is the same text.
    return json.dumps(told, ensure_ascii=False).replace("<", "\\u003c")
