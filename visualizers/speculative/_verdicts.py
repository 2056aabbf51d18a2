"""Markers and hover texts of the tokens of speculative rounds, the same in every figure."""

from __future__ import annotations

from engine.trace.rounds import Closing, Drafted
from visualizers.shared import style
from visualizers.shared.style import Mark

MARKS = {
    "accepted": Mark("circle", style.GREEN, 9),
    "rejected": Mark("x", style.VERMILLION, 9),
    "ignored": Mark("circle-open", style.INK, 8),
    "resampled": Mark("diamond", style.PURPLE, 10),
    "bonus": Mark("star", style.ORANGE, 12),
    "chosen": Mark("square", style.BLUE, 8),
}
NAMES = {
    **{verdict: verdict for verdict in MARKS},
    "ignored": "discarded after a rejection",
    "chosen": "no draft",
}
_REASONS = {
    "resampled": "replaces the rejected token",
    "bonus": "follows a fully accepted draft",
    "chosen": "nothing was drafted",
}


def drafted_hover(drafted: Drafted, number: int, label: str) -> str:
    """The hover text of a drafted token."""
    lines = [
        f"<b>{style.token_label(drafted.token.text)}</b>  {NAMES[drafted.verdict]}",
        f"round {number}, position {drafted.position} in the draft",
    ]
    if drafted.p is not None:
        lines.append(f"target model: p = {style.percent(drafted.p)}")
    if drafted.q is not None:
        lines.append(f"drafter: q = {style.percent(drafted.q)}")
    limit = drafted.acceptance_probability
    if drafted.draw is not None and limit is not None:
        sign = "&lt;" if drafted.draw < limit else "≥"
        lines.append(f"random draw {drafted.draw:.3f} {sign} min(1, p/q) = {limit:.3f}")
    if drafted.entropy is not None:
        lines.append(f"entropy {drafted.entropy:.2f} nats")
    return "<br>".join([*lines, style.escape(label)])


def closing_hover(closing: Closing, number: int, label: str) -> str:
    """The hover text of the last token of a round."""
    return "<br>".join(
        [
            f"<b>{style.token_label(closing.token.text)}</b>  {NAMES[closing.kind]}",
            f"round {number}, chosen by the target model: {_REASONS[closing.kind]}",
            style.escape(label),
        ]
    )
