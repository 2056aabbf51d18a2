"""Where the texts of runs diverge: which token each run chose there, and what the others gave it.

The texts of runs from the same prompt form a trie: runs share a line until their texts diverge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.trace import Candidate, Step, Token, Trace
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.runs import best_path, labels

_BEFORE, _AFTER = 6, 10  # tokens shown before the first divergence and after the last
_ROW, _COLUMN, _NARROW, _TOP, _BOTTOM = 86, 24, 8, 130, 60  # pixels
_MAX_LABELLED = 80  # with more tokens than these, only those at divergences are labelled
_MAX_TICKS = 14  # up to this many tokens, every position has a tick
_LABEL_WIDTH = 34  # characters of a run's label


class Text(NamedTuple):
    """The tokens of a run after the prompt; those of its prefix have no step."""

    run: int
    label: str
    origin: tuple[str, tuple[int, ...]]  # model and prompt: texts of others are not compared
    tokens: tuple[Token, ...]
    steps: tuple[Step | None, ...]


class Choice(NamedTuple):
    """What one of two runs chose where they diverge; ``token`` is None if its text had ended.

    ``other_raw`` and ``other_final`` are the probabilities that its distribution gave the other
    run's token: None where the token is not among the recorded candidates.
    """

    run: int
    token: Token | None
    raw: float | None
    final: float | None
    other_raw: float | None
    other_final: float | None


class Divergence(NamedTuple):
    """Two runs and the position (from 0) of the first token that differs; None: equal texts.

    ``gap`` is the difference of the model's log-probabilities of the two tokens, first minus
    second. Up to there the texts are equal, so both runs had the same model distribution.
    """

    at: int | None
    first: Choice
    second: Choice
    gap: float | None


class Segment(NamedTuple):
    """Tokens that the same runs share, drawn in one row; it branches off the row ``parent``."""

    runs: tuple[int, ...]
    row: int
    parent: int | None
    start: int
    tokens: tuple[Token, ...]
    last: bool  # no run continues after it


class Divergences(NamedTuple):
    """What the figure shows: the labels of the runs, the trie, and every pair of runs."""

    labels: dict[int, str]
    segments: tuple[Segment, ...]
    pairs: tuple[Divergence, ...]


@view("divergence", title="Where the texts diverge", order=40, min_traces=2)
def divergence(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Runs share a line until their texts diverge. The tokens chosen there have their probability
    in the model's distribution beside them; hover over one to see the probability that each run
    gave to the others' tokens.

    The gap is the difference of the model's log-probabilities of two such tokens.
    """
    return _figure(_info(traces), at)


def _info(traces: Sequence[Trace]) -> Divergences:
    texts = [
        _text(run, label, trace)
        for run, (label, trace) in enumerate(zip(labels(traces), traces, strict=True))
        if trace.steps
    ]
    names = {text.run: text.label for text in texts}
    if len(texts) < 2:
        return Divergences(names, (), ())
    return Divergences(names, _segments(texts), _pairs(texts))


def _text(run: int, label: str, trace: Trace) -> Text:
    path = best_path(trace)
    return Text(
        run,
        label,
        (trace.model, tuple(token.id for token in trace.prompt_tokens)),
        (*trace.prefix, *(step.token for step in path)),
        (*(None for _ in trace.prefix), *path),
    )


def _pairs(texts: Sequence[Text]) -> tuple[Divergence, ...]:
    """Every pair of runs from the same prompt, in the order of the comparison."""
    return tuple(
        _pair(*pair) for pair in combinations(texts, 2) if pair[0].origin == pair[1].origin
    )


def _pair(first: Text, second: Text) -> Divergence:
    shorter = min(len(first.tokens), len(second.tokens))
    differ = (at for at in range(shorter) if first.tokens[at].id != second.tokens[at].id)
    at = next(differ, shorter)
    if at == len(first.tokens) == len(second.tokens):
        nothing = (None, None, None, None, None)
        return Divergence(None, Choice(first.run, *nothing), Choice(second.run, *nothing), None)
    choices = _choice(first, second, at), _choice(second, first, at)
    return Divergence(at, *choices, _gap(first, second, at))


def _choice(own: Text, other: Text, at: int) -> Choice:
    step = own.steps[at] if at < len(own.steps) else None
    rival = _candidate(step, other.tokens[at]) if at < len(other.tokens) else None
    return Choice(
        own.run,
        own.tokens[at] if at < len(own.tokens) else None,
        step.probability if step else None,
        step.used if step else None,
        rival.raw if rival else None,
        rival.final if rival else None,
    )


def _candidate(step: Step | None, token: Token) -> Candidate | None:
    candidates = step.distribution.candidates if step and step.distribution else ()
    return next((item for item in candidates if item.token.id == token.id), None)


def _gap(first: Text, second: Text, at: int) -> float | None:
    if at >= min(len(first.tokens), len(second.tokens)):
        return None
    steps = [first.steps[at], second.steps[at]]
    own, other = (_log_probability(text.tokens[at], steps) for text in (first, second))
    return None if own is None or other is None else own - other


def _log_probability(token: Token, steps: Sequence[Step | None]) -> float | None:
    """The model's log-probability of a token, from the first step that recorded it."""
    for step in steps:
        if step and step.token.id == token.id and step.raw is not None:
            return step.raw
        if (found := _candidate(step, token)) and found.raw:
            return math.log(found.raw)
    return None


def _segments(texts: Sequence[Text]) -> tuple[Segment, ...]:
    """The texts as tries, one per prompt, with a row for every distinct text."""
    found: list[Segment] = []
    row = 0
    for origin in dict.fromkeys(text.origin for text in texts):
        row = _grow([text for text in texts if text.origin == origin], 0, row, None, found)
    return tuple(found)


def _grow(
    group: Sequence[Text], start: int, row: int, parent: int | None, found: list[Segment]
) -> int:
    """Add the segment that the group shares from ``start`` on and its branches; return the next
    free row."""
    end = start
    while len({_token_id(text, end) for text in group}) == 1 and end < len(group[0].tokens):
        end += 1
    branches: dict[int | None, list[Text]] = {}
    for text in group:
        branches.setdefault(_token_id(text, end), []).append(text)
    last = len(branches) == 1
    runs = tuple(text.run for text in group)
    found.append(Segment(runs, row, parent, start, group[0].tokens[start:end], last))
    if last:
        return row + 1
    below = row
    for branch in branches.values():
        below = _grow(branch, end, below, row, found)
    return below


def _token_id(text: Text, at: int) -> int | None:
    return text.tokens[at].id if at < len(text.tokens) else None


def _figure(info: Divergences, at: int | None = None) -> go.Figure:
    subtitle = "one line: equal tokens · %: probability in the model's distribution"
    figure = style.empty_figure(subtitle, "token", "run")
    if not info.segments:
        message = "At least two runs are needed."
        return style.with_message(figure, message) if info.labels else figure
    window = _window(info)
    figure.add_traces([*map(_line, info.segments)])
    figure.add_traces([_markers(info, one, window) for one in info.segments if _spots(one, window)])
    figure.update_layout(
        annotations=[label for one in info.segments for label in _token_labels(info, one, window)],
        height=_TOP + _BOTTOM + _ROW * _rows(info),
        margin={"t": _TOP, "b": _BOTTOM},
        meta=style.min_width(120 + 7 * _widest(info) + _column(window) * len(window)),
        showlegend=False,
    )
    figure.update_xaxes(
        range=[window.start - 0.5, window.stop + 1],  # room for the last label
        **{"dtick": 1 if len(window) <= _MAX_TICKS else 5, "tickangle": 0, "showgrid": False},
    )
    ends = {one.row: _row_label(info, one) for one in info.segments if one.last}
    figure.update_yaxes(
        **{"side": "right", "showgrid": False, "range": [_rows(info) - 0.5, -0.5]},
        tickvals=[*ends],
        ticktext=[*ends.values()],
    )
    return style.mark_position(figure, at)


def _window(info: Divergences) -> range:
    """The positions to show, from before the first divergence to after the last; 0: the prompt."""
    positions = [pair.at for pair in info.pairs if pair.at is not None]
    longest = max(one.start + len(one.tokens) for one in info.segments)
    start = max(0, min(positions, default=0) - _BEFORE)
    return range(start, min(longest, max(positions, default=0) + _AFTER) + 1)


def _column(window: range) -> int:
    return _COLUMN if len(window) <= _MAX_LABELLED else _NARROW


def _rows(info: Divergences) -> int:
    return max(one.row for one in info.segments) + 1


def _short(label: str) -> str:
    return style.escape(label if len(label) <= _LABEL_WIDTH else label[: _LABEL_WIDTH - 1] + "…")


def _row_label(info: Divergences, segment: Segment) -> str:
    """The runs that end in a row; a single run has its settings on a line of their own."""
    names = [info.labels[run] for run in segment.runs]
    lines = names if len(names) > 1 else names[0].split(" · ")
    return "<br>".join(map(_short, lines))


def _widest(info: Divergences) -> int:
    return max(len(_short(label)) for label in info.labels.values())


def _colour(segment: Segment) -> str:
    """The colour of the run; grey where several runs share the segment."""
    return style.INK if len(segment.runs) > 1 else style.run_mark(segment.runs[0]).colour


def _line(segment: Segment) -> go.Scatter:
    """A line from the token before, perhaps in another row, to the segment's last token."""
    end = segment.start + max(len(segment.tokens), 1 if segment.last else 0)
    before = segment.row if segment.parent is None else segment.parent
    return go.Scatter(
        x=[segment.start, min(segment.start + 1, end), end],
        y=[before, segment.row, segment.row],
        mode="lines",
        line={"color": _colour(segment), "width": 1 + 1.5 * len(segment.runs)},
        hoverinfo="skip",
    )


def _spots(segment: Segment, window: range) -> list[tuple[int, Token | None]]:
    """The positions of a segment with a marker; None marks the end of a text that stops there."""
    tokens = segment.tokens or ((None,) if segment.last else ())
    return [(at, token) for at, token in enumerate(tokens, segment.start + 1) if at in window]


def _markers(info: Divergences, segment: Segment, window: range) -> go.Scatter:
    spots = _spots(segment, window)
    mark = style.run_mark(segment.runs[0])
    return go.Scatter(
        x=[at for at, _ in spots],
        y=[segment.row] * len(spots),
        mode="markers",
        marker={
            "symbol": mark.symbol if len(segment.runs) == 1 else "circle",
            "color": _colour(segment),
            "size": [12 if _diverges(segment, at) else 6 for at, _ in spots],
            "opacity": 1,
            "line": {"width": 0},
        },
        hoverinfo="text",
        hovertext=[_hover(info, segment, at, token) for at, token in spots],
    )


def _diverges(segment: Segment, at: int) -> bool:
    return segment.parent is not None and at == segment.start + 1


def _token_labels(info: Divergences, segment: Segment, window: range) -> list[dict[str, Any]]:
    """The texts of the tokens, and at a divergence their probability."""
    all_labelled = len(window) <= _MAX_LABELLED
    found = [
        (at, _token_label(info, segment, at, token))
        for at, token in _spots(segment, window)
        if all_labelled or _diverges(segment, at)
    ]
    if segment.parent is None and window.start == 0:
        found.insert(0, (0, "<i>prompt</i>"))
    return [
        {
            "text": text,
            "showarrow": False,
            **{"x": at, "xanchor": "left", "xshift": -4, "textangle": -45},
            **{"y": segment.row, "yanchor": "bottom", "yshift": 5, "font": {"size": 11}},
        }
        for at, text in found
    ]


def _token_label(info: Divergences, segment: Segment, at: int, token: Token | None) -> str:
    if token is None:
        return "<i>end</i>"
    text = style.token_label(token.text, 10)
    if not _diverges(segment, at):
        return text
    known = (pair.first.raw for pair in _from_segment(info, segment) if pair.first.raw is not None)
    probability = next(known, None)
    return f"<b>{text}</b>" + ("" if probability is None else f" {style.percent(probability)}")


def _from_segment(info: Divergences, segment: Segment) -> list[Divergence]:
    """The pairs that diverge where the segment begins, each with the segment's run first."""
    found = []
    for pair in info.pairs:
        gap = None if pair.gap is None else -pair.gap
        for seen in (pair, Divergence(pair.at, pair.second, pair.first, gap)):
            apart = seen.first.run in segment.runs and seen.second.run not in segment.runs
            if apart and seen.at == segment.start:
                found.append(seen)
    return sorted(found, key=lambda pair: pair.second.run)


def _hover(info: Divergences, segment: Segment, at: int, token: Token | None) -> str:
    head = "<b>end of text</b>" if token is None else f"<b>{style.token_label(token.text)}</b>"
    lines = [f"{head}  token {at}", _run_names(info, segment.runs)]
    if not _diverges(segment, at):
        return "<br>".join(lines)
    by_token: dict[Token | None, list[Divergence]] = {}
    for pair in _from_segment(info, segment):
        by_token.setdefault(pair.second.token, []).append(pair)
    for other, pairs in by_token.items():
        lines += _rival_lines(info, other, pairs)
    return "<br>".join(lines)


def _rival_lines(info: Divergences, other: Token | None, pairs: Sequence[Divergence]) -> list[str]:
    """The probabilities that a segment's runs gave to the token other runs chose instead."""
    others = _run_names(info, [pair.second.run for pair in pairs])
    if other is None:
        return [f"instead of <i>ending</i>: {others}"]
    head = f"instead of <b>{style.token_label(other.text, 20)}</b>: {others}"
    if pairs[0].gap is not None:
        head += f", gap {pairs[0].gap:+.2f} nats"
    own = {pair.first.run: pair.first for pair in pairs if pair.first.token is not None}
    return [
        head,
        *(f"   in {_run_names(info, [run])}: {_rival(choice)}" for run, choice in own.items()),
    ]


def _run_names(info: Divergences, runs: Sequence[int]) -> str:
    return ", ".join(_short(info.labels[run]) for run in dict.fromkeys(runs))


def _rival(choice: Choice) -> str:
    """The probability that a run gave to the other run's token."""
    if choice.other_final is None:
        return "not among the recorded candidates"
    final = style.percent(choice.other_final) if choice.other_final else "cut"
    return f"model {style.percent(choice.other_raw)}, after processors {final}"
