"""Runs that share a line until their texts part.

Knows how lanes are drawn. Refuses to decide where texts part: `_partings` reads that from the
traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.trace import Token, Trace
from visualizers._shared import style as style
from visualizers.compare._divergence import Parting, Side, Stretch, partings, stretches, texts_of
from visualizers.registry import view

_BEFORE, _AFTER = 6, 10  # tokens shown before the first parting and after the last
_ROW, _COLUMN, _NARROW, _TOP, _BOTTOM = 86, 24, 8, 130, 60  # pixels
_LEGIBLE = 80  # with more tokens than these only those at partings are spelled
_FEW = 14  # so many tokens are counted one by one
_NAME = 34  # characters of a run's name


class Differences(NamedTuple):
    """What the figure shows: the shared and the own stretches, and every pair of runs."""

    names: dict[int, str]
    lanes: tuple[Stretch, ...]
    pairs: tuple[Parting, ...]


class Rivalry(NamedTuple):
    """A parting seen from one of its sides."""

    own: Side
    other: Side
    gap: float | None


def needs(trace: Trace) -> bool:
    """Any trace that took a step; it takes two of them."""
    return bool(trace.steps)


@view("difference", title="Where the texts part", order=40, needs=needs, least=2)
def difference(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Runs share a line until their texts part; there stand the tokens they took and how probable
    the model found each, and a token's card says what each run had given the others' tokens.

    The gap is the difference of the model's log-probabilities of two such tokens.
    """
    return _figure(_info(traces), at)


def _info(traces: Sequence[Trace]) -> Differences:
    texts = texts_of(traces)
    if len(texts) < 2:
        return Differences({text.place: text.label for text in texts}, (), ())
    names = {text.place: text.label for text in texts}
    return Differences(names, stretches(texts), partings(texts))


def _figure(info: Differences, at: int | None = None) -> go.Figure:
    subtitle = "one line: the same tokens · %: the model's own probability"
    figure = style.blank("Where the texts part", subtitle, "token", "run")
    if not info.lanes:
        return style.said(figure, "It takes two runs to differ.") if info.names else figure
    window = _window(info)
    figure.add_traces([*map(_line, info.lanes)])
    figure.add_traces([_marks(info, lane, window) for lane in info.lanes if _spots(lane, window)])
    figure.update_layout(
        annotations=[word for lane in info.lanes for word in _words(info, lane, window)],
        height=_TOP + _BOTTOM + _ROW * _rows(info),
        margin={"t": _TOP, "b": _BOTTOM},
        meta=style.at_least(120 + 7 * _widest(info) + _column(window) * len(window)),
        showlegend=False,
    )
    figure.update_xaxes(
        range=[window.start - 0.5, window.stop + 1],  # room for the last label
        **{"dtick": 1 if len(window) <= _FEW else 5, "tickangle": 0, "showgrid": False},
    )
    ends = {lane.row: _row_name(info, lane) for lane in info.lanes if lane.last}
    figure.update_yaxes(
        title={"standoff": 12},
        **{"side": "right", "showgrid": False, "range": [_rows(info) - 0.5, -0.5]},
        tickvals=[*ends],
        ticktext=[*ends.values()],
    )
    return style.pointed(figure, at)


def _window(info: Differences) -> range:
    """The places to show, from before the first parting to after the last; 0 is the prompt."""
    partings = [pair.at for pair in info.pairs if pair.at is not None]
    longest = max(lane.start + len(lane.tokens) for lane in info.lanes)
    start = max(0, min(partings, default=0) - _BEFORE)
    return range(start, min(longest, max(partings, default=0) + _AFTER) + 1)


def _column(window: range) -> int:
    return _COLUMN if len(window) <= _LEGIBLE else _NARROW


def _rows(info: Differences) -> int:
    return max(lane.row for lane in info.lanes) + 1


def _short(name: str) -> str:
    return style.escape(name if len(name) <= _NAME else name[: _NAME - 1] + "…")


def _row_name(info: Differences, lane: Stretch) -> str:
    """Who ends on a row; one run alone has the room to say its settings on a line of their own."""
    names = [info.names[run] for run in lane.runs]
    lines = names if len(names) > 1 else names[0].split(" · ")
    return "<br>".join(map(_short, lines))


def _widest(info: Differences) -> int:
    return max(len(_short(name)) for name in info.names.values())


def _colour(lane: Stretch) -> str:
    """A run's own colour once it is alone."""
    return style.INK if len(lane.runs) > 1 else style.trace_mark(lane.runs[0]).colour


def _line(lane: Stretch) -> go.Scatter:
    """From the token before, perhaps on another row, to its own last one."""
    end = lane.start + max(len(lane.tokens), 1 if lane.last else 0)
    before = lane.row if lane.parent is None else lane.parent
    return go.Scatter(
        x=[lane.start, min(lane.start + 1, end), end],
        y=[before, lane.row, lane.row],
        mode="lines",
        line={"color": _colour(lane), "width": 1 + 1.5 * len(lane.runs)},
        hoverinfo="skip",
    )


def _spots(lane: Stretch, window: range) -> list[tuple[int, Token | None]]:
    """The places of a lane that can be pointed at; None is the end of a text that stops there."""
    tokens = lane.tokens or ((None,) if lane.last else ())
    return [(at, token) for at, token in enumerate(tokens, lane.start + 1) if at in window]


def _marks(info: Differences, lane: Stretch, window: range) -> go.Scatter:
    spots = _spots(lane, window)
    mark = style.trace_mark(lane.runs[0])
    return go.Scatter(
        x=[at for at, _ in spots],
        y=[lane.row] * len(spots),
        mode="markers",
        marker={
            "symbol": mark.symbol if len(lane.runs) == 1 else "circle",
            "color": _colour(lane),
            "size": [_big(lane, at) for at, _ in spots],
            "opacity": 1,
            "line": {"width": 0},
        },
        hoverinfo="text",
        hovertext=[_hover(info, lane, at, token) for at, token in spots],
    )


def _parts(lane: Stretch, at: int) -> bool:
    return lane.parent is not None and at == lane.start + 1


def _big(lane: Stretch, at: int) -> int:
    return 12 if _parts(lane, at) else 6


def _words(info: Differences, lane: Stretch, window: range) -> list[dict[str, Any]]:
    """The spelling of the tokens, and at a parting how probable the model found them."""
    legible = len(window) <= _LEGIBLE
    words = [
        (at, _label(info, lane, at, token))
        for at, token in _spots(lane, window)
        if legible or _parts(lane, at)
    ]
    if lane.parent is None and window.start == 0:
        words.insert(0, (0, "<i>prompt</i>"))
    return [
        {
            "text": text,
            "showarrow": False,
            **{"x": at, "xanchor": "left", "xshift": -4, "textangle": -45},
            **{"y": lane.row, "yanchor": "bottom", "yshift": 5, "font": {"size": 11}},
        }
        for at, text in words
    ]


def _label(info: Differences, lane: Stretch, at: int, token: Token | None) -> str:
    if token is None:
        return "<i>end</i>"
    text = style.spelled(token.text, 10)
    if not _parts(lane, at):
        return text
    given = next((own.raw for own, *_ in _against(info, lane) if own.raw is not None), None)
    return f"<b>{text}</b>" + ("" if given is None else f" {style.percent(given)}")


def _against(info: Differences, lane: Stretch) -> list[Rivalry]:
    """Every run that this lane's runs parted from where it begins."""
    found = []
    for pair in info.pairs:
        gap = None if pair.gap is None else -pair.gap
        for rivalry in (Rivalry(*pair[1:]), Rivalry(pair.second, pair.first, gap)):
            apart = rivalry.own.run in lane.runs and rivalry.other.run not in lane.runs
            if apart and pair.at == lane.start:
                found.append(rivalry)
    return sorted(found, key=lambda rivalry: rivalry.other.run)


def _hover(info: Differences, lane: Stretch, at: int, token: Token | None) -> str:
    head = "<b>the text ends</b>" if token is None else f"<b>{style.spelled(token.text)}</b>"
    lines = [f"{head}  token {at}", _named(info, lane.runs)]
    if not _parts(lane, at):
        return "<br>".join(lines)
    by_token: dict[Token | None, list[Rivalry]] = {}
    for rivalry in _against(info, lane):
        by_token.setdefault(rivalry.other.token, []).append(rivalry)
    told = [line for other, taken in by_token.items() for line in _told(info, other, taken)]
    return "<br>".join([*lines, *told])


def _told(info: Differences, other: Token | None, taken: Sequence[Rivalry]) -> list[str]:
    """What these runs gave the token that others took in its place."""
    others = _named(info, [rivalry.other.run for rivalry in taken])
    if other is None:
        return [f"instead of <i>ending</i>: {others}"]
    head = f"instead of <b>{style.spelled(other.text, 20)}</b>: {others}"
    if taken[0].gap is not None:
        head += f", gap {taken[0].gap:+.2f} nats"
    given = {rivalry.own.run: rivalry.own for rivalry in taken if rivalry.own.token is not None}
    own = [f"   {_named(info, [run])} gave it: {_given(side)}" for run, side in given.items()]
    return [head, *own]


def _named(info: Differences, runs: Sequence[int]) -> str:
    return ", ".join(_short(info.names[run]) for run in dict.fromkeys(runs))


def _given(own: Side) -> str:
    if own.other_raw is None or own.other_final is None:
        return "not among the recorded candidates"
    used = style.percent(own.other_final) if own.other_final else "cut"
    return f"model {style.percent(own.other_raw)}, as used {used}"
