"""A detection as data for the script that shows it.

Text of visitors and models travels as JSON and reaches the page as text content only.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from engine.watermark.detection import Detection, Layers, RoundTrip, TokenVerdict
from engine.watermark.statistics import Score
from engine.watermark.windows import Scan
from playground.ui.shared.html import json_value

_WHOLE = 0.85  # a passage with this share of the text is not framed
_MAX_KEYS = 3  # that are named in the verdict
_MAX_TOKENS = 3_000  # that are shown; the numbers are of all

_NOT_SCORED = {
    "context": "not scored: too few tokens before it",
    "repeated": "not scored: repeated n-gram",
    "bos": "not scored: start of text",
    "eos": "not scored: after the end of text",
}


def empty(text: str) -> str:
    """The view without a text to examine."""
    return _view({"empty": text})


def error(text: str) -> str:
    """The view after an error."""
    return _view({"error": text})


def detection(found: Detection, scan: Scan, name: str, notes: list[str]) -> str:
    """The view of a detection in the text called ``name``."""
    layered = found.layers is not None
    return _view(
        {
            "verdict": found.verdict,
            "about": _scheme_and_key(found),
            "reason": found.reason,
            "name": name,
            "notes": [*_round_trip(found.round_trip), _passage(scan), *notes],
            "counts": _counts(found),
            "layers": _layers(found.layers) if found.layers else [],
            "tokens": [_token(token, layered) for token in found.tokens[:_MAX_TOKENS]],
            "more": max(0, len(found.tokens) - _MAX_TOKENS),
            "best": _framed(found, scan),
            "layered": layered,
        }
    )


def _view(value: dict[str, Any]) -> str:
    """The component's value. It is never the same twice, so that the script always sees it."""
    return json_value({**value, "once": uuid.uuid4().hex})


def _scheme_and_key(found: Detection) -> str:
    """What the verdict refers to. Of many keys, the first ones."""
    if "keys" not in found.settings:
        return f"for the key {found.settings['hashing_key']} and the scheme {found.scheme}"
    keys = found.settings["keys"]
    first = ", ".join(map(str, keys[:_MAX_KEYS]))
    more = f", … ({len(keys)} in all)" if len(keys) > _MAX_KEYS else ""
    noun = "key" if len(keys) == 1 else "keys"
    return f"for the {noun} {first}{more} and the scheme {found.scheme}"


def _framed(found: Detection, scan: Scan) -> list[int] | None:
    """The range of the watermarked passage, unless it is about the whole text."""
    best = scan.best
    if best is None or not scan.found or best.tokens_scored >= _WHOLE * len(found.tokens):
        return None
    return [best.start, best.end]


def _counts(found: Detection) -> dict[str, Any]:
    """The numbers, with a column for each way of counting."""
    ways = {
        "all n-grams": found.with_repeats,
        "each n-gram once": found.without_repeats,
        "independent draws": found.independent,
    }
    if found.round_trip:
        ways["re-tokenized"] = found.round_trip.score
    green = "g above chance" if found.layers else "green"
    rows: list[tuple[str, Callable[[Score], str]]] = [
        ("tokens scored", lambda score: str(score.tokens_scored)),
        (green, lambda score: str(score.green_tokens)),
        (f"{green}, share", lambda score: f"{score.green_fraction:.1%}"),
        ("z-score", _z),
        ("p, normal approximation", lambda score: _p(score, score.p_value)),
        ("p, exact", lambda score: _p(score, score.exact_p)),
    ]
    used = 1 if found.ignore_repeated else 0
    return {
        "ways": list(ways),
        "used": used,
        "rows": [[name, *(text(score) for score in ways.values())] for name, text in rows],
    }


def _z(score: Score) -> str:
    return f"{score.z_score:.2f}" if score.tokens_scored else "–"


def _p(score: Score, p: float) -> str:
    return _p_text(p) if score.tokens_scored else "–"


def _p_text(p: float) -> str:
    """A p-value as text."""
    return f"{p:.3g}" if p >= 1e-300 else "< 1e-300"


def _layers(layers: Layers) -> list[list[str]]:
    """SynthID's two scores, each with its threshold at this length."""
    weighted = (layers.weighted_mean, layers.weighted_threshold, layers.weighted_z)
    plain = (layers.mean, layers.mean_threshold, layers.mean_z)
    return [
        ["score", "value", "expected", "threshold", "z-score", "p"],
        *(
            [
                name,
                f"{value:.4f}",
                f"{layers.share:.4f}",
                f"{threshold:.4f}",
                f"{z:.2f}",
                _p_text(p),
            ]
            for name, (value, threshold, z), p in (
                ("weighted mean", weighted, layers.weighted_p),
                ("mean", plain, layers.mean_p),
            )
        ),
    ]


def _round_trip(trip: RoundTrip | None) -> list[str]:
    if trip is None:
        return []
    if not trip.lost:
        return [
            f"Re-tokenized from its text, all {trip.tokens} tokens are the same: {trip.verdict}."
        ]
    return [
        f"Re-tokenized from its text, {trip.lost} of {trip.tokens} tokens differ; z becomes "
        f"{trip.score.z_score:.2f}: {trip.verdict}."
    ]


def _passage(scan: Scan) -> str:
    best = scan.best
    if best is None:
        return "The text is too short to scan."
    where = f"tokens {best.start + 1} to {best.end}"
    windows = f"{scan.windows:,} window{'s' if scan.windows > 1 else ''}"
    p = f"p = {_p_text(best.corrected_p)} after correction for {windows}"
    lead = "Watermarked passage" if scan.found else "No watermarked passage. Highest score"
    return f"{lead}: {where}, z {best.z_score:.2f}, {p}."


def _token(token: TokenVerdict, layered: bool) -> list[str]:
    """Its text, its class, and its tooltip."""
    if token.verdict == "unscored":
        return [token.text, "unscored", _NOT_SCORED[token.why or "context"]]
    if layered:
        side = "above" if token.verdict == "green" else "not above"
        ones = f"{sum(token.g_values)} of {len(token.g_values)} g-values are 1"
        return [token.text, token.verdict, f"{side} chance: {ones}, weighted {token.value:.3f}"]
    repeated = ", repeated n-gram" if token.repeated else ""
    return [token.text, token.verdict, f"{token.verdict}{repeated}"]
