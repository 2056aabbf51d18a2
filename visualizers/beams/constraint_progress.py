"""How constrained beam search fulfilled its constraints, token by token."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers.registry import view
from visualizers.shared import style
from visualizers.shared.panels import (
    TokenAxis,
    category_axis,
    label_tokens,
    outline,
    panel_note,
    panel_title,
    stacked_panels,
    step_index,
    token_axis,
)
from visualizers.shared.runs import TokenTexts, best_path, labels, token_texts

_ROW = 34  # pixels


class Search(NamedTuple):
    """One constrained beam search, seen along its best text.

    ``progress`` holds, per phrase and token, the fulfilled and the total number of the phrase's
    tokens; ``bank`` the bank of the best text at each token; ``bank_sizes`` the number of beams
    kept in each bank at each token.
    """

    label: str
    axis: TokenAxis
    phrases: tuple[str, ...]
    progress: tuple[tuple[tuple[int, int], ...], ...]  # (phrases, tokens)
    forced: tuple[bool, ...]
    bank: tuple[int, ...]
    bank_sizes: tuple[dict[int, int], ...]
    highlighted: int | None  # index of a token


class Searches(NamedTuple):
    """What the figure shows."""

    searches: tuple[Search, ...]


def needs(trace: Trace) -> bool:
    """Whether the trace is of a search with constraints."""
    return any("constraints" in step.notes for step in trace.steps)


@view("constraint_progress", title="Constraints", tab="strategy", order=61, needs=needs)
def constraint_progress(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Top: how many tokens of each required phrase the best text contained after each token.
    Bottom: the number of beams in each bank (beams that fulfil equally many constraint tokens); the
    frame is the best text's own bank, a diamond where its token was forced, that is, kept only
    because it advances a constraint.

    A phrase that is interrupted starts again from zero.
    """
    return _figure(_info(traces, at))


def _info(traces: Sequence[Trace], at: int | None = None) -> Searches:
    named = zip(traces, labels(traces), strict=True)
    return Searches(tuple(_search(trace, label, at) for trace, label in named if needs(trace)))


def _search(trace: Trace, label: str, at: int | None) -> Search:
    path = best_path(trace)
    counts = [step.notes["constraints"] for step in path]
    return Search(
        label,
        token_axis(trace, path),
        _phrases(trace, len(counts[0]), token_texts(trace)),
        tuple(tuple((done, total) for done, total in row) for row in zip(*counts, strict=True)),
        tuple(step.notes["forced"] for step in path),
        tuple(step.notes["bank"] for step in path),
        _bank_sizes(trace.steps)[: len(path)],
        None if at is None else step_index(trace, path, at),
    )


def _bank_sizes(steps: Sequence[Step]) -> tuple[dict[int, int], ...]:
    """The number of beams kept in each bank, for every length."""
    depth: dict[int | None, int] = {None: 0}
    kept: dict[int, Counter[int]] = defaultdict(Counter)
    for step in steps:
        depth[step.id] = depth[step.parent] + 1
        if step.event != "pruned":
            kept[depth[step.id]][step.notes["bank"]] += 1
    return tuple(dict(kept[length]) for length in sorted(kept))


def _phrases(trace: Trace, count: int, texts: TokenTexts) -> tuple[str, ...]:
    """The required phrases; ``phrase 2`` where the trace does not hold the texts of its tokens."""
    required = [
        item if isinstance(item[0], list | tuple) else [item]
        for name in ("force_words", "force_words_ids")
        for item in trace.settings.get(name) or ()
    ]
    names = [f"phrase {number}" for number in range(1, count + 1)]
    for index, alternatives in enumerate(required[:count]):
        known = [tokens for tokens in alternatives if all(token in texts for token in tokens)]
        if known:
            names[index] = "".join(texts[token] for token in known[0]).strip()
    return tuple(names)


def _figure(info: Searches) -> go.Figure:
    heights = [
        rows * _ROW
        for search in info.searches
        for rows in (len(search.phrases), 1 + _highest_bank(search))
    ]
    subtitle = "top: tokens of each phrase fulfilled · bottom: beams in each bank"
    figure = stacked_panels(subtitle, "token", "phrase", heights, bottom=150)
    label_tokens(figure, [search.axis for search in info.searches for _ in range(2)])
    for index, search in enumerate(info.searches):
        upper, lower = 2 * index + 1, 2 * index + 2
        figure.add_trace(_progress_map(search), row=upper, col=1)
        bank_traces = [_bank_map(search), *_own_banks(search, in_legend=index == 0)]
        figure.add_traces(bank_traces, rows=lower, cols=1)
        phrases = [style.escape(phrase[:16]) for phrase in search.phrases]
        figure.update_yaxes(category_axis(phrases), row=upper)
        banks = [str(bank) for bank in range(1 + _highest_bank(search))]
        figure.update_yaxes(category_axis(banks), title="bank", row=lower)
        figure.add_annotation(panel_title(upper, search.label))
        figure.add_annotation(panel_note(lower, "beams in each bank"))
        if search.highlighted is not None:
            position = search.axis.first + search.highlighted
            for row in (upper, lower):
                outline(figure, row, (position - 0.5, position + 0.5), None)
    # The cells show their numbers, so no colour scale is drawn.
    sizes = [
        size for search in info.searches for kept in search.bank_sizes for size in kept.values()
    ]
    shared = {"colorscale": "Viridis", "showscale": False, "cmin": 0}
    largest = max(sizes, default=1)
    figure.update_layout(coloraxis={**shared, "cmax": 1}, coloraxis2={**shared, "cmax": largest})
    return figure


def _highest_bank(search: Search) -> int:
    return max(bank for kept in search.bank_sizes for bank in kept)


_CELLS: dict[str, Any] = {"xgap": 1, "ygap": 1, "hoverongaps": False, "hoverinfo": "text"}


def _progress_map(search: Search) -> go.Heatmap:
    return go.Heatmap(
        x=search.axis.positions,
        y=list(range(len(search.phrases))),
        z=[[done / total for done, total in row] for row in search.progress],
        text=[[f"{done}/{total}" for done, total in row] for row in search.progress],
        texttemplate="%{text}",
        hovertext=[
            [
                f"{_token(search, index)}<br>{style.escape(phrase)}: {done} of {total} tokens"
                for index, (done, total) in enumerate(row)
            ]
            for phrase, row in zip(search.phrases, search.progress, strict=True)
        ],
        coloraxis="coloraxis",
        **_CELLS,
    )


def _token(search: Search, index: int) -> str:
    forced = ", forced" if search.forced[index] else ""
    text = style.token_label(search.axis.tokens[index])
    return f"<b>{text}</b> (token {search.axis.first + index}{forced})"


def _bank_map(search: Search) -> go.Heatmap:
    banks = range(1 + _highest_bank(search))
    return go.Heatmap(
        x=search.axis.positions,
        y=list(banks),
        z=[[kept.get(bank) for kept in search.bank_sizes] for bank in banks],
        texttemplate="%{z}",
        hovertext=[
            [
                f"{_token(search, index)}<br>{kept.get(bank, 0)} beams in bank {bank}"
                for index, kept in enumerate(search.bank_sizes)
            ]
            for bank in banks
        ],
        coloraxis="coloraxis2",
        **_CELLS,
    )


def _own_banks(search: Search, *, in_legend: bool) -> list[go.Scatter]:
    """Frames around the bank of the best text, of another shape where its token was forced."""
    tokens = [*zip(search.axis.positions, search.bank, search.forced, strict=True)]
    return [
        go.Scatter(
            x=[position for position, _, forced in tokens if forced is is_forced],
            y=[bank for _, bank, forced in tokens if forced is is_forced],
            mode="markers",
            marker={
                **{"symbol": symbol, "size": 24, "color": style.VERMILLION},
                "line": {"width": 2.5},
            },
            hoverinfo="skip",
            name=name,
            legendgroup=name,
            showlegend=in_legend,
        )
        for name, symbol, is_forced in (
            ("best text", "square-open", False),
            ("best text, forced token", "diamond-open", True),
        )
    ]
