"""DoLa: the log-probability of one step's candidates at every layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.panels import panel_title, stacked_panels, step_index
from visualizers.shared.runs import TokenTexts, best_path, labels, token_text, token_texts

_HEIGHT = 360  # pixels of a panel
_SHOWN = 8  # tokens
CHOSEN, KEPT, CUT = OUTCOMES = ("chosen", "kept", "cut")


class Candidate(NamedTuple):
    """One token: its log-probability at each layer, the final layer last, and its outcome.

    ``contrast`` is the difference between the final and the contrasted layer.
    """

    token: str
    log_probs: tuple[float, ...]
    contrast: float
    outcome: str  # one of OUTCOMES


class Contest(NamedTuple):
    """The candidates of one step; its position counts from 1, ``layers`` are the early layers."""

    label: str
    position: int
    layers: tuple[int, ...]
    contrasted: int
    candidates: tuple[Candidate, ...]


class Contests(NamedTuple):
    """What the figure shows."""

    contests: tuple[Contest, ...]


def needs(trace: Trace) -> bool:
    """Whether every step recorded its candidates' log-probabilities at all layers."""
    return bool(trace.steps) and all(map(_recorded, trace.steps))


def _recorded(step: Step) -> bool:
    rows, layers = step.notes.get("candidates", ()), step.notes.get("divergences", ())
    return bool(rows and layers) and all(len(row) == len(layers) + 2 for row in rows)


@view("dola_candidates", title="DoLa: candidates", tab="strategy", order=51, needs=needs)
def dola_candidates(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Log-probability of one step's candidates at each layer. DoLa favours the token that gains
    most (the number in the legend) between the contrasted layer (dashed line) and the final layer.
    Tokens that the final layer finds implausible are cut, however much they gain. Unless a token is
    pinned, this is the last token for which the contrast changed the choice.
    """
    return _figure(_info(traces, at))


def _info(traces: Sequence[Trace], at: int | None = None) -> Contests:
    named = zip(traces, labels(traces), strict=True)
    return Contests(tuple(_contest(trace, label, at) for trace, label in named if needs(trace)))


def _contest(trace: Trace, label: str, at: int | None) -> Contest:
    path = best_path(trace)
    last_change = max((i for i, step in enumerate(path) if (step.rank or 1) > 1), default=-1)
    index = step_index(trace, path, at, last_change)
    step = path[index]
    layers = [int(layer) for layer in step.notes["divergences"]]
    return Contest(
        label,
        len(trace.prefix) + index + 1,
        tuple(sorted(layers)),
        step.notes["layer"],
        _candidates(step, layers, token_texts(trace)),
    )


def _candidates(step: Step, layers: Sequence[int], texts: TokenTexts) -> tuple[Candidate, ...]:
    """The chosen token, then those kept, then those cut, each in order of contrast."""
    contrasted = layers.index(step.notes["layer"])
    order = sorted(range(len(layers)), key=lambda index: layers[index])
    found = []
    for token, *early, final in step.notes["candidates"]:
        outcome = CUT if token in step.notes.get("cut", ()) else KEPT
        if token == step.token.id:
            outcome = CHOSEN
        log_probs = (*(early[index] for index in order), final)
        contrast = round(final - early[contrasted], 6)
        found.append(Candidate(token_text(token, texts), log_probs, contrast, outcome))
    found.sort(key=lambda one: (OUTCOMES.index(one.outcome), -one.contrast))
    return tuple(found)


def _figure(info: Contests) -> go.Figure:
    heights = [_HEIGHT] * len(info.contests)
    figure = stacked_panels(_subtitle(info), "layer", "log-probability (nats)", heights, bottom=110)
    for row, contest in enumerate(info.contests, start=1):
        lines = [_line(contest, one, at) for at, one in enumerate(contest.candidates[:_SHOWN])]
        if len(info.contests) > 1:
            for line in lines:
                line.update(legendgroup=str(row))
            lines[0].update(legendgrouptitle={"text": style.escape(contest.label)})
        figure.add_traces(lines, rows=row, cols=1)
        ticks = [*map(str, contest.layers), "final"]
        figure.update_xaxes(
            tickvals=list(range(len(ticks))),
            ticktext=ticks,
            range=[-0.3, len(ticks) - 0.7],
            row=row,
        )
        detail = f"token {contest.position} · dashed: layer {contest.contrasted}"
        figure.add_annotation(panel_title(row, contest.label, detail))
        figure.add_vline(
            contest.layers.index(contest.contrasted),
            line={"color": style.INK, "width": 1.5, "dash": "dash"},
            row=row,
        )
    return figure


def _subtitle(info: Contests) -> str:
    positions = sorted({contest.position for contest in info.contests})
    shown = f"token {', '.join(map(str, positions))} · " if positions else ""
    return f"{shown}solid: kept · dotted: cut · ★ chosen"


def _line(contest: Contest, candidate: Candidate, number: int) -> go.Scatter:
    mark = style.run_mark(number)
    chosen, cut = candidate.outcome == CHOSEN, candidate.outcome == CUT
    suffix = {CHOSEN: " ★", CUT: " cut"}.get(candidate.outcome, "")
    repeated = number >= len(style.OKABE_ITO)  # the colours start again, with another line style
    layers = [*map(str, contest.layers), "final"]
    return go.Scatter(
        x=list(range(len(layers))),
        y=list(candidate.log_probs),
        mode="lines+markers",
        line={
            "color": style.MUTED if cut else mark.colour,
            "width": 3.5 if chosen else 1.8,
            "dash": "dot" if cut else "dashdot" if repeated else "solid",
        },
        marker={
            "symbol": mark.symbol + "-open" * (cut or repeated),
            "size": 11 if chosen else 7,
            "color": style.INK if cut else mark.colour,
        },
        hovertext=[
            _hover(candidate, layer, log_prob)
            for layer, log_prob in zip(layers, candidate.log_probs, strict=True)
        ],
        hoverinfo="text",
        name=f"{style.token_label(candidate.token, 16)}{suffix} {candidate.contrast:+.1f}",
        cliponaxis=False,
    )


def _hover(candidate: Candidate, layer: str, log_prob: float) -> str:
    where = "final layer" if layer == "final" else f"layer {layer}"
    return "<br>".join(
        [
            f"<b>{style.token_label(candidate.token)}</b>  {candidate.outcome}",
            f"{where}: {log_prob:.2f} nats ({style.percent(math.exp(log_prob))})",
            f"final minus contrasted layer: {candidate.contrast:+.2f}",
        ]
    )
