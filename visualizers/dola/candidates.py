"""What every layer said of the tokens that competed for one place.

Knows the log-probabilities DoLa noted layer by layer. Refuses to know how a layer is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers._shared import style as style
from visualizers._shared.lines import best_path
from visualizers._shared.panels import Words, headline, named, pinned, stacked
from visualizers._shared.spellings import Spellings, called, spellings
from visualizers.registry import view

_HEIGHT = 360  # pixels of a panel
_SHOWN = 8  # tokens


class Course(NamedTuple):
    """One token: its log-probability at each layer, the final one last, and what became of it."""

    token: str
    log_probs: tuple[float, ...]
    contrast: float
    fate: str  # chosen, left or cut


class Contest(NamedTuple):
    """The tokens at one place, counted from 1; the final layer is not among the ``layers``."""

    label: str
    place: int
    layers: tuple[int, ...]
    contrasted: int
    courses: tuple[Course, ...]


class Contests(NamedTuple):
    """What the figure shows."""

    contests: tuple[Contest, ...]


def needs(trace: Trace) -> bool:
    """A trace that noted what all its layers said."""
    return bool(trace.steps) and all(map(_told, trace.steps))


def _told(step: Step) -> bool:
    rows, layers = step.notes.get("candidates", ()), step.notes.get("divergences", ())
    return bool(rows and layers) and all(len(row) == len(layers) + 2 for row in rows)


@view("dola_candidates", title="DoLa: candidates", order=51, tab="why", needs=needs)
def dola_candidates(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """What each layer thought of the tokens that competed for one place. DoLa favours the token
    that gains most (the number in the legend) between the dashed line, the layer it contrasts with,
    and the final layer; tokens that the final layer itself finds implausible are cut, however much
    they gain. Unless a place is pinned, this is the last token whose choice the contrast changed.
    """
    return _figure(_info(traces, at))


def _info(traces: Sequence[Trace], at: int | None = None) -> Contests:
    named_ones = zip(traces, style.labels(traces), strict=True)
    return Contests(tuple(_contest(trace, name, at) for trace, name in named_ones if needs(trace)))


def _contest(trace: Trace, label: str, at: int | None) -> Contest:
    path = best_path(trace)
    telling = max((at for at, step in enumerate(path) if (step.rank or 1) > 1), default=-1)
    place = pinned(trace, path, at, telling)
    step = path[place]
    layers = [int(layer) for layer in step.notes["divergences"]]
    return Contest(
        label,
        len(trace.prefix) + place + 1,
        tuple(sorted(layers)),
        step.notes["layer"],
        _courses(step, layers, spellings(trace)),
    )


def _courses(step: Step, layers: Sequence[int], known: Spellings) -> tuple[Course, ...]:
    """The chosen token first, then those left, then those cut, each by what they gained."""
    early = layers.index(step.notes["layer"])
    order = sorted(range(len(layers)), key=lambda place: layers[place])
    courses = []
    for token, *at_layers, final in step.notes["candidates"]:
        fate = "cut" if token in step.notes.get("cut", ()) else "left"
        if token == step.token.id:
            fate = "chosen"
        log_probs = (*(at_layers[place] for place in order), final)
        courses.append(
            Course(called(token, known), log_probs, round(final - at_layers[early], 6), fate)
        )
    fates = ("chosen", "left", "cut")
    courses.sort(key=lambda course: (fates.index(course.fate), -course.contrast))
    return tuple(courses)


def _figure(info: Contests) -> go.Figure:
    words = Words(
        "DoLa: candidates",
        _subtitle(info),
        "layer",
        "log-probability (nats)",
    )
    figure = stacked(words, [_HEIGHT] * len(info.contests), bottom=110)
    for row, contest in enumerate(info.contests, start=1):
        lines = [_line(contest, course, at) for at, course in enumerate(contest.courses[:_SHOWN])]
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
        more = f"for token {contest.place} · dashed: layer {contest.contrasted}"
        figure.add_annotation(headline(named(contest.label, more), row))
        figure.add_vline(
            contest.layers.index(contest.contrasted),
            line={"color": style.INK, "width": 1.5, "dash": "dash"},
            row=row,
        )
    figure.update_layout(meta=style.at_least(340))
    return figure


def _subtitle(info: Contests) -> str:
    """Which tokens these are."""
    places = sorted({contest.place for contest in info.contests})
    shown = f"for token {', '.join(map(str, places))} · " if places else ""
    return f"{shown}solid: left by the contrast · dotted: cut · ★ chosen"


def _line(contest: Contest, course: Course, number: int) -> go.Scatter:
    mark, chosen, cut = style.trace_mark(number), course.fate == "chosen", course.fate == "cut"
    fate = {"chosen": " ★", "cut": " cut"}.get(course.fate, "")
    name = f"{style.spelled(course.token, 16)}{fate} {course.contrast:+.1f}"
    again = number >= len(style.OKABE_ITO)  # a colour comes a second time, with another shape
    layers = [*map(str, contest.layers), "final"]
    return go.Scatter(
        x=list(range(len(layers))),
        y=list(course.log_probs),
        mode="lines+markers",
        line={
            "color": style.QUIET if cut else mark.colour,
            "width": 3.5 if chosen else 1.8,
            "dash": "dot" if cut else "dashdot" if again else "solid",
        },
        marker={
            **{"symbol": mark.symbol + "-open" * (cut or again), "size": 11 if chosen else 7},
            "color": style.INK if cut else mark.colour,
        },
        hovertext=[
            _hover(course, layer, log_prob)
            for layer, log_prob in zip(layers, course.log_probs, strict=True)
        ],
        hoverinfo="text",
        name=name,
        cliponaxis=False,
    )


def _hover(course: Course, layer: str, log_prob: float) -> str:
    where = "final layer" if layer == "final" else f"layer {layer}"
    return "<br>".join(
        [
            f"<b>{style.spelled(course.token)}</b>  {course.fate}",
            f"{where}: {log_prob:.2f} nats ({style.percent(math.exp(log_prob))})",
            f"final less contrasted layer: {course.contrast:+.2f}",
        ]
    )
