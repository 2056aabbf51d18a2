"""The rounds of a speculative run over time: drafting, verification, and each token's verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from engine.trace import Trace
from engine.trace.rounds import Round, needs, rounds
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.panels import panel_title, stacked_panels
from visualizers.shared.runs import labels
from visualizers.speculative._verdicts import MARKS, NAMES, closing_hover, drafted_hover

_TOKEN = 26  # pixels that a token's text needs
_WIDEST = 6_000


class RoundToken(NamedTuple):
    """One token: its time in the run, its position in the draft, and its verdict."""

    ms: float
    position: int
    text: str
    verdict: str
    hover: str


class Lane(NamedTuple):
    """One run."""

    label: str
    rounds: tuple[Round, ...]
    tokens: tuple[RoundToken, ...]

    @property
    def longest_draft(self) -> int:
        """The highest position of a token."""
        return max((token.position for token in self.tokens), default=1)


class Timeline(NamedTuple):
    """What the figure shows."""

    lanes: tuple[Lane, ...]


# Not a figure of every comparison: the times of runs that share forward passes are not their own.
@view("speculative_timeline", title="Rounds over time", tab="rounds", order=10, needs=needs)
def speculative_timeline(traces: Sequence[Trace]) -> go.Figure:
    """Each round over time: hatched while drafting, plain while the target model verifies. The
    tokens of the round are above it, each at the height of its position in the draft.
    """
    return _figure(_info(traces))


def _info(traces: Sequence[Trace]) -> Timeline:
    lanes = []
    for trace, label in zip(traces, labels(traces), strict=True):
        if needs(trace):
            found = rounds(trace)
            tokens = [token for one in found for token in _tokens(one, label)]
            lanes.append(Lane(label, found, tuple(tokens)))
    return Timeline(tuple(lanes))


def _tokens(one: Round, label: str) -> list[RoundToken]:
    """The tokens of a round, spread over its time from left to right."""
    spacing = (one.ended_ms - one.began_ms) / (len(one.drafted) + 1)
    tokens = [
        RoundToken(
            one.began_ms + spacing * (index + 0.5),
            drafted.position,
            drafted.token.text,
            drafted.verdict,
            drafted_hover(drafted, one.number, label),
        )
        for index, drafted in enumerate(one.drafted)
    ]
    if closing := one.closing:
        tokens.append(
            RoundToken(
                one.ended_ms - spacing / 2,
                len(one.accepted) + 1,
                closing.token.text,
                closing.kind,
                closing_hover(closing, one.number, label),
            )
        )
    return tokens


def _figure(info: Timeline) -> go.Figure:
    figure = stacked_panels(
        "hatched: drafting · plain: verification · height: position in the draft",
        "ms since the pass over the prompt",
        "position in the draft",
        [150 + 24 * min(lane.longest_draft, 12) for lane in info.lanes],
        between=110,
        bottom=110,
    )
    in_legend: set[str] = set()
    for row, lane in enumerate(info.lanes, start=1):
        for bar in _bars(lane, in_legend=row == 1):
            figure.add_trace(bar, row=row, col=1)
        for verdict in MARKS:
            tokens = [token for token in lane.tokens if token.verdict == verdict]
            if tokens:
                markers = _markers(tokens, verdict, in_legend=verdict not in in_legend)
                figure.add_trace(markers, row=row, col=1)
                in_legend.add(verdict)
        positions = list(range(1, lane.longest_draft + 1))
        figure.update_yaxes(range=[-1.2, lane.longest_draft + 0.9], tickvals=positions, row=row)
        figure.add_annotation(panel_title(row, lane.label))
    most = max((len(lane.tokens) for lane in info.lanes), default=0)
    width = min(_WIDEST, 320 + _TOKEN * most)
    figure.update_layout(barmode="overlay", meta=style.min_width(width))
    return figure


def _bars(lane: Lane, *, in_legend: bool) -> list[go.Bar]:
    """The time each round spent on drafting and on verification, below its tokens."""
    drafting = [(one.began_ms, one.draft_ms) for one in lane.rounds]
    verification = [(one.ended_ms - (one.verify_ms or 0.0), one.verify_ms) for one in lane.rounds]
    return [
        go.Bar(
            base=[start for start, _ in spans],
            x=[ms for _, ms in spans],
            y=[-0.4] * len(spans),
            width=0.9,
            orientation="h",
            name=name,
            legendgroup=name,
            showlegend=in_legend,
            marker={
                **{"color": colour, "line": {"color": style.INK, "width": 1}},
                "pattern": {"shape": shape, "fgcolor": "#222222", "fillmode": "overlay"},
            },
            hovertext=[
                f"round {one.number}: {name} {'not measured' if ms is None else f'{ms:.0f} ms'}"
                f"<br>{len(one.drafted)} drafted, {len(one.accepted)} accepted"
                for one, (_, ms) in zip(lane.rounds, spans, strict=True)
            ],
            hoverinfo="text",
        )
        for name, colour, shape, spans in (
            ("drafting", style.ORANGE, "/", drafting),
            ("verification", style.SKY, "", verification),
        )
    ]


def _markers(tokens: Sequence[RoundToken], verdict: str, *, in_legend: bool) -> go.Scatter:
    mark = MARKS[verdict]
    return go.Scatter(
        x=[token.ms for token in tokens],
        y=[token.position for token in tokens],
        text=[style.token_label(token.text, 10) for token in tokens],
        textposition="top center",
        textfont={"size": 10},
        hovertext=[token.hover for token in tokens],
        hoverinfo="text",
        mode="markers+text",
        marker={"symbol": mark.symbol, "color": mark.colour, "size": mark.size},
        name=NAMES[verdict],
        legendgroup=verdict,
        showlegend=in_legend,
        cliponaxis=False,
    )
