"""The rounds of speculative runs on their clocks: drafting, judging, and what became of each token.

Knows rounds as a trace tells them. Refuses to know which drafter it was. The times of a run that
shared its passes with others are not its own, so this is no view of every comparison: it is for
runs that were alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from engine.trace.rounds import Round, needs, rounds
from visualizers._shared import style as style
from visualizers._shared.panels import Words, headline, named, stacked
from visualizers.speculative._verdicts import MARKS, NAMES, closing_card, drafted_card

_TOKEN = 20  # pixels that a token's text needs
_WIDEST = 6_000


class Dot(NamedTuple):
    """One token: when in the run (ms) and how far into its draft, and what became of it."""

    ms: float
    height: int
    text: str
    verdict: str
    card: str


class Lane(NamedTuple):
    """One run."""

    label: str
    rounds: tuple[Round, ...]
    dots: tuple[Dot, ...]

    @property
    def highest(self) -> int:
        """The longest draft's height."""
        return max((dot.height for dot in self.dots), default=1)


class Timeline(NamedTuple):
    """What the figure shows."""

    lanes: tuple[Lane, ...]


def speculative_timeline(traces: Sequence[Trace]) -> go.Figure:
    """Each round of a run on its clock: hatched while a draft is written, plain while the model
    judges it; above, the round's tokens, the higher the further into the draft."""
    return _figure(_info(traces))


def _info(traces: Sequence[Trace]) -> Timeline:
    lanes = []
    for trace, label in zip(traces, style.labels(traces), strict=True):
        if needs(trace):
            told = rounds(trace)
            dots = [dot for one in told for dot in _dots(one, label)]
            lanes.append(Lane(label, told, tuple(dots)))
    return Timeline(tuple(lanes))


def _dots(one: Round, label: str) -> list[Dot]:
    """A round's tokens, side by side in the time it took: a draft is written from left to right."""
    took = one.ended_ms - one.began_ms
    apart = took / (len(one.drafted) + 1)
    dots = [
        Dot(
            one.began_ms + apart * (place + 0.5),
            token.position,
            token.token.text,
            token.verdict,
            drafted_card(token, one.number, label),
        )
        for place, token in enumerate(one.drafted)
    ]
    if one.closing:
        card = closing_card(one.closing, one.number, label)
        kept, text = len(one.accepted), one.closing.token.text
        at = one.ended_ms - apart / 2
        dots.append(Dot(at, kept + 1, text, one.closing.kind, card))
    return dots


def _figure(info: Timeline) -> go.Figure:
    words = Words(
        "Rounds on the clock",
        "hatched: drafting · plain: judging · tokens stand as high as they are far into a draft",
        "ms since the prompt was read",
        "place in the draft",
    )
    heights = [150 + 24 * min(lane.highest, 12) for lane in info.lanes]
    figure = stacked(words, heights, between=110, bottom=110)
    shown: set[str] = set()
    for row, lane in enumerate(info.lanes, start=1):
        for bar in _bars(lane, first=row == 1):
            figure.add_trace(bar, row=row, col=1)
        for verdict in MARKS:
            dots = [dot for dot in lane.dots if dot.verdict == verdict]
            if dots:
                figure.add_trace(_marks(dots, verdict, verdict not in shown), row=row, col=1)
                shown.add(verdict)
        every = list(range(1, lane.highest + 1))
        figure.update_yaxes(range=[-1.2, lane.highest + 0.9], tickvals=every, row=row)
        figure.add_annotation(headline(named(lane.label), row))
    tokens = max((len(lane.dots) for lane in info.lanes), default=0)
    width = min(_WIDEST, 320 + _TOKEN * tokens)
    figure.update_layout(barmode="overlay", meta=style.at_least(width))
    return figure


def _bars(lane: Lane, *, first: bool) -> list[go.Bar]:
    """How long each round drafted and judged, below its tokens."""
    kinds = (
        ("drafting", style.ORANGE, "/", [(one.began_ms, one.draft_ms) for one in lane.rounds]),
        (
            "judging",
            style.SKY,
            "",
            [(one.began_ms + one.draft_ms, one.verify_ms) for one in lane.rounds],
        ),
    )
    return [
        go.Bar(
            base=[began for began, _ in spans],
            x=[ms for _, ms in spans],
            y=[-0.4] * len(spans),
            width=0.9,
            orientation="h",
            name=name,
            legendgroup=name,
            showlegend=first,
            marker={
                **{"color": colour, "line": {"color": style.INK, "width": 1}},
                "pattern": {"shape": shape, "fgcolor": "#222222", "fillmode": "overlay"},
            },
            hovertext=[
                f"round {one.number}: {name} {ms:.0f} ms"
                f"<br>{len(one.drafted)} drafted, {len(one.accepted)} accepted"
                for one, (_, ms) in zip(lane.rounds, spans, strict=True)
            ],
            hoverinfo="text",
        )
        for name, colour, shape, spans in kinds
    ]


def _marks(dots: Sequence[Dot], verdict: str, first: bool) -> go.Scatter:
    mark = MARKS[verdict]
    return go.Scatter(
        x=[dot.ms for dot in dots],
        y=[dot.height for dot in dots],
        text=[style.spelled(dot.text, 10) for dot in dots],
        textposition="top center",
        textfont={"size": 10},
        hovertext=[dot.card for dot in dots],
        hoverinfo="text",
        mode="markers+text",
        marker={"symbol": mark.symbol, "color": mark.colour, "size": mark.size},
        name=NAMES[verdict],
        legendgroup=verdict,
        showlegend=first,
        cliponaxis=False,
    )
