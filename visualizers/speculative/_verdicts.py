"""How the tokens of speculative rounds look in every figure, and what is said of them.

Knows verdicts and their marks. Refuses to know what a figure measures.
"""

from __future__ import annotations

from engine.trace.rounds import Closing, Drafted
from visualizers._shared import style as style
from visualizers._shared.style import Mark

MARKS = {
    "accepted": Mark("circle", style.GREEN, 9),
    "rejected": Mark("x", style.VERMILLION, 9),
    "ignored": Mark("circle-open", style.INK, 8),
    "resampled": Mark("diamond", style.PURPLE, 10),
    "bonus": Mark("star", style.ORANGE, 12),
    "chosen": Mark("square", style.BLUE, 8),
}
NAMES = {**{verdict: verdict for verdict in MARKS}, "chosen": "plain"}


def drafted_card(one: Drafted, number: int, label: str) -> str:
    """What stands under the pointer on a drafted token."""
    lines = [
        f"<b>{style.spelled(one.token.text)}</b>  {one.verdict}",
        f"round {number}, place {one.position} of its draft",
    ]
    if one.p is not None:
        lines.append(f"p {style.percent(one.p)} by the model")
    if one.q is not None:
        lines.append(f"q {style.percent(one.q)} by its drafter")
    if one.draw is not None and one.bar is not None:
        sign = "below" if one.draw < one.bar else "not below"
        lines.append(f"draw {one.draw:.3f} is {sign} min(1, p/q) = {one.bar:.3f}")
    if one.entropy is not None:
        lines.append(f"entropy {one.entropy:.2f} nats")
    return "<br>".join([*lines, style.escape(label)])


def closing_card(one: Closing, number: int, label: str) -> str:
    """What stands under the pointer on a round's last token."""
    why = {
        "resampled": "in place of the rejected one",
        "bonus": "after a draft that was kept whole",
        "chosen": "nothing was drafted",
    }
    return "<br>".join(
        [
            f"<b>{style.spelled(one.token.text)}</b>  {NAMES[one.kind]}",
            f"round {number}, the model's own: {why[one.kind]}",
            style.escape(label),
        ]
    )
