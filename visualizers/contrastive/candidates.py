"""Why contrastive search took a token: probability against likeness, one mark per candidate.

Knows the numbers contrastive search noted of each candidate. Refuses to know hidden states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers._shared import style as style
from visualizers._shared.lines import best_path
from visualizers._shared.panels import Words, headline, named, pinned, stacked
from visualizers._shared.style import Mark
from visualizers.registry import view

_HEIGHT = 340  # pixels of a panel
_LABELS = 12  # of the best candidates
_APART = 17  # pixels between labels
_CHOSEN, _LOST = Mark("star", style.VERMILLION, 16), Mark("circle", style.SKY, 10)


class Candidate(NamedTuple):
    """One token that was weighed, and the earlier one its hidden state is most like."""

    token: str
    probability: float
    similarity: float
    score: float
    chosen: bool
    like: str
    like_place: str


class Weighing(NamedTuple):
    """The candidates of one step, best first; its place counts from 1."""

    label: str
    alpha: float
    place: int
    candidates: tuple[Candidate, ...]


class Contrast(NamedTuple):
    """What the figure shows."""

    weighings: tuple[Weighing, ...]


def needs(trace: Trace) -> bool:
    """A trace whose candidates were weighed by likeness."""
    return any("similar_to" in step.notes for step in trace.steps)


@view("contrastive", title="Contrastive search", order=40, tab="why", needs=needs)
def contrastive(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """The candidates for one token: the further right, the more probable; the higher, the more like
    something already in the text. Every slanted line joins points of equal score, so the token
    furthest towards the lower right wins, not always the most probable one. Unless a place is
    pinned, this is the last token for which likeness changed the choice.
    """
    return _figure(_info(traces, at))


def _info(traces: Sequence[Trace], at: int | None = None) -> Contrast:
    named_ones = zip(traces, style.labels(traces), strict=True)
    return Contrast(tuple(_weighing(trace, name, at) for trace, name in named_ones if needs(trace)))


def _weighing(trace: Trace, label: str, at: int | None) -> Weighing:
    path = best_path(trace)
    rivals: dict[int | None, list[Step]] = {}
    for step in trace.steps:
        rivals.setdefault(step.parent, []).append(step)
    place = pinned(trace, path, at, _telling(path))
    found = [_candidate(step, trace, path, place) for step in rivals[path[place].parent]]
    return Weighing(
        label,
        float(trace.settings["penalty_alpha"]),
        len(trace.prefix) + place + 1,
        tuple(sorted(found, key=lambda candidate: -candidate.score)),
    )


def _telling(path: Sequence[Step]) -> int:
    """The last step that did not take the most probable token, else the last one."""
    return max((at for at, step in enumerate(path) if (step.rank or 1) > 1), default=-1)


def _candidate(step: Step, trace: Trace, path: Sequence[Step], place: int) -> Candidate:
    notes, chosen = step.notes, path[place]
    token, where = _earlier(trace, path, notes["similar_to"], _start(trace, chosen, place))
    return Candidate(
        step.token.text,
        notes["probability"],
        notes["similarity"],
        notes["score"],
        step.id == chosen.id,
        token,
        where,
    )


def _start(trace: Trace, chosen: Step, place: int) -> int:
    """How many tokens stood before the first written one: behind an encoder, not the prompt's."""
    if "since" not in chosen.notes:
        return len(trace.prompt_tokens) + len(trace.prefix)
    return int(chosen.notes["since"]) + len(chosen.notes["similarities"]) - place


def _earlier(trace: Trace, path: Sequence[Step], index: int, start: int) -> tuple[str, str]:
    """The spelling of an earlier token and where it stands, by its place in what the model read."""
    before = (*trace.prompt_tokens, *trace.prefix)
    if index >= start:
        return path[index - start].token.text, f"token {len(trace.prefix) + index - start + 1}"
    if start != len(before):
        return "", "the beginning of the text"
    own = index - len(trace.prompt_tokens)
    return before[index].text, "the prompt" if own < 0 else f"token {own + 1}"


def _figure(info: Contrast) -> go.Figure:
    words = Words(
        "Contrastive search",
        _subtitle(info),
        "probability p",
        "likeness s to an earlier token",
    )
    figure = stacked(words, [_HEIGHT] * len(info.weighings), bottom=110)
    annotations = []
    for row, weighing in enumerate(info.weighings, start=1):
        x, y = _ranges(weighing)
        figure.add_traces(
            [*_scores(weighing, x, y, row), *_marks(weighing, row)],
            rows=[row] * 4,
            cols=[1] * 4,
        )
        figure.update_xaxes(range=x, tickformat=".0%", row=row)
        figure.update_yaxes(range=y, row=row)
        annotations += [headline(named(weighing.label, _sentence(weighing)), row)]
        annotations += _labels(weighing, x, y, row)
    figure.update_layout(annotations=annotations, meta=style.at_least(340))
    return figure


def _subtitle(info: Contrast) -> str:
    """Which tokens these are."""
    places = sorted({weighing.place for weighing in info.weighings})
    shown = f"token {', '.join(map(str, places))} · " if places else ""
    return f"{shown}lines join equal scores · the lower right is better"


def _sentence(weighing: Weighing) -> str:
    alpha = weighing.alpha
    return f"token {weighing.place} · score = {1 - alpha:.2g} p − {alpha:.2g} s"


def _ranges(weighing: Weighing) -> tuple[tuple[float, float], tuple[float, float]]:
    """Both axes: around the candidates, and never so narrow that nothing but noise is seen."""
    likest = [candidate.similarity for candidate in weighing.candidates]
    middle, half = (max(likest) + min(likest)) / 2, max(0.05, (max(likest) - min(likest)) * 0.65)
    widest = max(candidate.probability for candidate in weighing.candidates)
    return (-0.04 * widest, 1.12 * widest), (middle - half, middle + half)


def _scores(
    weighing: Weighing, x: tuple[float, float], y: tuple[float, float], row: int
) -> list[go.Contour]:
    """Lines of equal score, and the one on which the chosen token stands."""
    alpha = weighing.alpha
    [best] = [candidate.score for candidate in weighing.candidates if candidate.chosen]
    corners = [[(1 - alpha) * p - alpha * s for p in x] for s in y]
    shared: dict[str, Any] = {"x": x, "y": y, "z": corners, "hoverinfo": "skip", "ncontours": 9}
    shared |= {"showscale": False, "showlegend": False}
    every = {"coloring": "none", "showlabels": True, "labelfont": {"color": style.INK, "size": 11}}
    own = {"type": "constraint", "operation": "=", "value": best}
    through = {"color": style.VERMILLION, "width": 2, "dash": "dash"}
    return [
        go.Contour(contours=every, line={"color": style.QUIET, "width": 1}, **shared),
        go.Contour(contours=own, line=through, **shared),
    ]


def _marks(weighing: Weighing, row: int) -> list[go.Scatter]:
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
            showlegend=row == 1,
            cliponaxis=False,
        )
        for name, mark, found in (
            ("chosen", _CHOSEN, [one for one in weighing.candidates if one.chosen]),
            ("turned down", _LOST, [one for one in weighing.candidates if not one.chosen]),
        )
    ]


def _hover(candidate: Candidate) -> str:
    like = f"<b>{style.spelled(candidate.like)}</b> ({candidate.like_place})"
    return "<br>".join(
        [
            f"<b>{style.spelled(candidate.token)}</b>"
            f"  {'chosen' if candidate.chosen else 'turned down'}",
            f"probability: {style.percent(candidate.probability)}",
            f"likeness: {candidate.similarity:.3f}",
            f"score: {candidate.score:.3f}",
            f"most like {like if candidate.like else candidate.like_place}",
        ]
    )


def _labels(
    weighing: Weighing, x: tuple[float, float], y: tuple[float, float], row: int
) -> list[dict[str, Any]]:
    """A spelling beside each of the best candidates, moved apart where they would collide."""
    axis = "" if row == 1 else str(row)
    found = sorted(weighing.candidates[:_LABELS], key=lambda one: -one.similarity)
    labels, taken = [], 0.0
    for candidate in found:
        height = (y[1] - candidate.similarity) / (y[1] - y[0]) * _HEIGHT  # pixels from the top
        level = max(height, taken + _APART)
        taken = level
        left = candidate.probability > 0.6 * x[1]
        text = style.spelled(candidate.token, 14)
        labels.append(
            {
                "text": f"<b>{text}</b>" if candidate.chosen else text,
                **{"xref": f"x{axis}", "x": candidate.probability, "yref": f"y{axis}"},
                **{"y": candidate.similarity, "ax": -24 if left else 24, "ay": level - height},
                **{"xanchor": "right" if left else "left", "arrowhead": 0, "standoff": 7},
                **{"arrowwidth": 1, "arrowcolor": style.QUIET, "font": {"size": 13}},
            }
        )
    return labels
