"""What a drawn tree says: the names of trees, the words on its nodes and at its tips.

Knows what a node holds and how it is put into words. Refuses to know colours and lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from visualizers.beams._tree import Node, Tip, Tree
from visualizers.beams._tree_layout import Place
from visualizers.shared import style

_SCORES = {"score": "step score", "total": "total", "normalized": "normalised by length"}


def title(tree: Tree) -> str:
    """The name of a tree, as plotly's HTML."""
    more = f" · {tree.texts} texts" if tree.texts else ""
    return f"<b>{style.escape(tree.label)}</b>{more}"


def hover(node: Node, event: str, texts: int | None) -> str:
    """Everything that was recorded of a node."""
    step, notes = node.step, dict(node.step.notes)
    lines = [
        f"<b>{style.token_label(step.token.text)}</b>  {style.escape(event)}",
        "not captured"
        if step.probability is None
        else f"model: {style.percent(step.probability)}, rank {step.rank}",
    ]
    if texts:
        lines.append(f"{node.texts} of {texts} texts pass here")
    lines += _scores(node)
    lines += _group(notes)
    lines += _constraints(notes)
    # What is left and is one number, not a list for another figure.
    told = {name: value for name, value in notes.items() if name not in _SCORES}
    lines += [
        style.escape(f"{name}: {value}")
        for name, value in told.items()
        if not isinstance(value, list | tuple | Mapping)
    ]
    return "<br>".join([*lines, f"tick {step.tick}"])


def _scores(node: Node) -> list[str]:
    """The scores of a hypothesis, with the sum and the quotient where both can be shown."""
    if sums := node.sums:
        power = f"{sums.length}<sup>{sums.length_penalty:g}</sup>"
        return [
            f"step score: {sums.score:.3f}",
            f"total: {sums.before:.3f} {_signed(sums.score)} = {sums.total:.3f}",
            f"normalised by length: {sums.total:.3f} / {power} = {sums.normalized:.3f}",
        ]
    numbers = ((words, node.step.notes.get(name)) for name, words in _SCORES.items())
    return [f"{words}: {value:.3f}" for words, value in numbers if isinstance(value, float | int)]


def _signed(number: float) -> str:
    return f"{'−' if number < 0 else '+'} {abs(number):.3f}"


def _group(notes: dict[str, Any]) -> list[str]:
    if (group := notes.pop("group", None)) is None:
        return []
    penalty = notes.pop("penalty", 0.0)
    return [f"group {group + 1}" + (f", penalty {penalty:g}" if penalty else "")]


def _constraints(notes: dict[str, Any]) -> list[str]:
    """How far a hypothesis has come with what it must contain."""
    if (counts := notes.pop("constraints", None)) is None:
        return []
    met = sum(done == of for done, of in counts)
    tokens = ", ".join(f"{done}/{of}" for done, of in counts)
    forced = ["forced: only a constraint put it up"] if notes.pop("forced", False) else []
    return [f"constraints met: {met} of {len(counts)} (tokens {tokens})", *forced]


def labels(tree: Tree, row: int) -> list[dict[str, Any]]:
    """The annotations of a tree: the spelling of every returned token, ranks and scores at the
    tips, where a slanted token would be in their way."""
    axis = "" if row == 1 else str(row)
    tips = {tip.place for tip in tree.tips}
    passing: dict[int | None, int] = {node.step.id: node.texts for node in tree.nodes}
    tokens = [
        _slanted(node.place, _token(node, passing.get(node.step.parent), tree.texts))
        for node in tree.nodes
        if node.returned and node.place not in tips
    ]
    start = _slanted(tree.root, "<i>text so far</i>" if tree.root.depth else "<i>prompt</i>")
    words = [start, *tokens, *(_tip(tip, tree.texts) for tip in tree.tips)]
    return [{"showarrow": False, "xref": f"x{axis}", "yref": f"y{axis}", **item} for item in words]


def _token(node: Node, above: int | None, texts: int | None) -> str:
    """A token's spelling; where drawn texts part, how many go this way."""
    text = style.token_label(node.step.token.text, 10)
    return f"{text} <b>×{node.texts}</b>" if texts and 1 < node.texts != above else text


def _slanted(place: Place, text: str) -> dict[str, Any]:
    """A label above its node, slanted so that neighbours stay apart."""
    return {
        "text": text,
        **{"x": place.depth, "xanchor": "left", "xshift": -4},
        **{"y": place.row, "yanchor": "bottom", "yshift": 4},
        **{"textangle": -45, "font": {"size": 11}},
    }


def _tip(tip: Tip, texts: int | None) -> dict[str, Any]:
    score = "" if tip.score is None else f" {tip.score:.3f}"
    group = "" if tip.group is None else f" · group {tip.group + 1}"
    ranks = " ".join(f"#{rank}" for rank in tip.ranks)
    if texts:  # they are in no order but that of drawing
        ranks = "text " + ", ".join(map(str, tip.ranks))
    return {
        "text": f"{style.token_label(tip.token, 10)} · <b>{ranks}</b>{score}{group}",
        **{"x": tip.place.depth, "xanchor": "left", "xshift": 10},
        **{"y": tip.place.row, "yanchor": "middle", "font": {"size": 12}},
    }
