"""The candidates of one step of contrastive search: probability against similarity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.panels import panel_title, stacked_panels, step_index
from visualizers.shared.runs import best_path, labels
from visualizers.shared.style import Mark

_HEIGHT = 340  # pixels of a panel
_LABELLED = 12  # of the best candidates
_LABEL_SPACING = 17  # pixels
_CHOSEN, _REJECTED = Mark("star", style.VERMILLION, 16), Mark("circle", style.SKY, 10)

Range = tuple[float, float]


class Candidate(NamedTuple):
    """One candidate token, and the earlier token whose hidden state is most similar to its own."""

    token: str
    probability: float
    similarity: float
    score: float
    chosen: bool
    similar_token: str
    similar_position: str


class Contest(NamedTuple):
    """The candidates of one step, best first; its position counts from 1."""

    label: str
    alpha: float
    position: int
    candidates: tuple[Candidate, ...]


class Contests(NamedTuple):
    """What the figure shows."""

    contests: tuple[Contest, ...]


def needs(trace: Trace) -> bool:
    """Whether the trace recorded the similarity of its candidates."""
    return any("similar_to" in step.notes for step in trace.steps)


@view(
    "contrastive_candidates",
    title="Contrastive search: candidates",
    tab="strategy",
    order=40,
    needs=needs,
)
def contrastive_candidates(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """The candidates for one token by probability and by similarity to the text so far. Each
    slanted line joins points of equal score, so the token furthest to the lower right wins, which
    is not always the most probable one. Unless a token is pinned, this is the last token for which
    similarity changed the choice.
    """
    return _figure(_info(traces, at))


def _info(traces: Sequence[Trace], at: int | None = None) -> Contests:
    named = zip(traces, labels(traces), strict=True)
    return Contests(tuple(_contest(trace, label, at) for trace, label in named if needs(trace)))


def _contest(trace: Trace, label: str, at: int | None) -> Contest:
    path = best_path(trace)
    siblings: dict[int | None, list[Step]] = {}
    for step in trace.steps:
        siblings.setdefault(step.parent, []).append(step)
    index = step_index(trace, path, at, _last_change(path))
    found = [_candidate(step, trace, path, index) for step in siblings[path[index].parent]]
    return Contest(
        label,
        float(trace.settings["penalty_alpha"]),
        len(trace.prefix) + index + 1,
        tuple(sorted(found, key=lambda candidate: -candidate.score)),
    )


def _last_change(path: Sequence[Step]) -> int:
    """The index of the last step that did not choose the most probable token, else of the last."""
    return max((index for index, step in enumerate(path) if (step.rank or 1) > 1), default=-1)


def _candidate(step: Step, trace: Trace, path: Sequence[Step], index: int) -> Candidate:
    notes, chosen = step.notes, path[index]
    start = _tokens_before(trace, chosen, index)
    token, position = _earlier_token(trace, path, notes["similar_to"], start)
    return Candidate(
        step.token.text,
        notes["probability"],
        notes["similarity"],
        notes["score"],
        step.id == chosen.id,
        token,
        position,
    )


def _tokens_before(trace: Trace, chosen: Step, index: int) -> int:
    """The number of tokens before the first new one: a decoder with an encoder does not read the
    prompt's."""
    if "since" not in chosen.notes:
        return len(trace.prompt_tokens) + len(trace.prefix)
    return int(chosen.notes["since"]) + len(chosen.notes["similarities"]) - index


def _earlier_token(trace: Trace, path: Sequence[Step], index: int, start: int) -> tuple[str, str]:
    """The text and the position of an earlier token, by its index in the model's input."""
    before = (*trace.prompt_tokens, *trace.prefix)
    if index >= start:
        return path[index - start].token.text, f"token {len(trace.prefix) + index - start + 1}"
    if start != len(before):
        return "", "the start of the text"
    in_prefix = index - len(trace.prompt_tokens)
    return before[index].text, "the prompt" if in_prefix < 0 else f"token {in_prefix + 1}"


def _figure(info: Contests) -> go.Figure:
    heights = [_HEIGHT] * len(info.contests)
    axes = ("probability p", "similarity s to an earlier token")
    figure = stacked_panels(_subtitle(info), *axes, heights, bottom=110)
    annotations = []
    for row, contest in enumerate(info.contests, start=1):
        x, y = _ranges(contest)
        figure.add_traces(
            [*_score_lines(contest, x, y), *_markers(contest, in_legend=row == 1)],
            rows=[row] * 4,
            cols=[1] * 4,
        )
        figure.update_xaxes(range=x, tickformat=".0%", row=row)
        figure.update_yaxes(range=y, row=row)
        annotations += [panel_title(row, contest.label, _formula(contest))]
        annotations += _token_labels(contest, x, y, row)
    figure.update_layout(annotations=annotations)
    return figure


def _subtitle(info: Contests) -> str:
    positions = sorted({contest.position for contest in info.contests})
    shown = f"token {', '.join(map(str, positions))} · " if positions else ""
    return f"{shown}lines join equal scores · lower right is better"


def _formula(contest: Contest) -> str:
    alpha = contest.alpha
    return f"token {contest.position} · score = {1 - alpha:.2g} p − {alpha:.2g} s"


def _ranges(contest: Contest) -> tuple[Range, Range]:
    """The ranges of both axes: around the candidates, and wide enough not to magnify noise."""
    similarities = [candidate.similarity for candidate in contest.candidates]
    lowest, highest = min(similarities), max(similarities)
    middle, half = (highest + lowest) / 2, max(0.05, (highest - lowest) * 0.65)
    largest = max(candidate.probability for candidate in contest.candidates)
    return (-0.04 * largest, 1.12 * largest), (middle - half, middle + half)


def _score_lines(contest: Contest, x: Range, y: Range) -> list[go.Contour]:
    """Lines of equal score, and the one through the chosen token."""
    alpha = contest.alpha
    [best] = [candidate.score for candidate in contest.candidates if candidate.chosen]
    corners = [[(1 - alpha) * p - alpha * s for p in x] for s in y]
    shared: dict[str, Any] = {"x": x, "y": y, "z": corners, "hoverinfo": "skip", "ncontours": 9}
    shared |= {"showscale": False, "showlegend": False}
    every = {"coloring": "none", "showlabels": True, "labelfont": {"color": style.INK, "size": 11}}
    chosen = {"type": "constraint", "operation": "=", "value": best}
    dashed = {"color": style.VERMILLION, "width": 2, "dash": "dash"}
    return [
        go.Contour(contours=every, line={"color": style.MUTED, "width": 1}, **shared),
        go.Contour(contours=chosen, line=dashed, **shared),
    ]


def _markers(contest: Contest, *, in_legend: bool) -> list[go.Scatter]:
    return [
        go.Scatter(
            x=[candidate.probability for candidate in found],
            y=[candidate.similarity for candidate in found],
            mode="markers",
            marker={"symbol": mark.symbol, "color": mark.colour, "size": mark.size},
            hovertext=[_hover(candidate) for candidate in found],
            hoverinfo="text",
            name=name,
            legendgroup=name,
            showlegend=in_legend,
            cliponaxis=False,
        )
        for name, mark, found in (
            ("chosen", _CHOSEN, [one for one in contest.candidates if one.chosen]),
            ("rejected", _REJECTED, [one for one in contest.candidates if not one.chosen]),
        )
    ]


def _hover(candidate: Candidate) -> str:
    position = candidate.similar_position
    similar = f"<b>{style.token_label(candidate.similar_token)}</b> ({position})"
    return "<br>".join(
        [
            f"<b>{style.token_label(candidate.token)}</b>"
            f"  {'chosen' if candidate.chosen else 'rejected'}",
            f"probability: {style.percent(candidate.probability)}",
            f"similarity: {candidate.similarity:.3f}",
            f"score: {candidate.score:.3f}",
            f"most similar to {similar if candidate.similar_token else position}",
        ]
    )


def _token_labels(contest: Contest, x: Range, y: Range, row: int) -> list[dict[str, Any]]:
    """The texts of the best candidates beside their markers, moved apart where they collide."""
    axis = "" if row == 1 else str(row)
    found = sorted(contest.candidates[:_LABELLED], key=lambda one: -one.similarity)
    annotations, lowest = [], 0.0
    for candidate in found:
        height = (y[1] - candidate.similarity) / (y[1] - y[0]) * _HEIGHT  # pixels from the top
        level = max(height, lowest + _LABEL_SPACING)
        lowest = level
        left = candidate.probability > 0.6 * x[1]
        text = style.token_label(candidate.token, 14)
        annotations.append(
            {
                "text": f"<b>{text}</b>" if candidate.chosen else text,
                **{"xref": f"x{axis}", "x": candidate.probability, "yref": f"y{axis}"},
                **{"y": candidate.similarity, "ax": -24 if left else 24, "ay": level - height},
                **{"xanchor": "right" if left else "left", "arrowhead": 0, "standoff": 7},
                **{"arrowwidth": 1, "arrowcolor": style.MUTED, "font": {"size": 13}},
            }
        )
    return annotations
