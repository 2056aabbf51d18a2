"""How a text under constraints came to have what it must contain.

Knows the progress and the banks constrained beam search noted. Refuses to know how a phrase is
matched.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from engine.trace import Step, Trace
from visualizers._shared import style as style
from visualizers._shared.lines import best_path
from visualizers._shared.panels import (
    Text,
    Words,
    headline,
    leveled,
    named,
    outlined,
    pinned,
    stacked,
    text_of,
    written,
)
from visualizers._shared.spellings import Spellings, spellings
from visualizers.registry import view

_ROW = 34  # pixels


class Progress(NamedTuple):
    """One search: how far the best text had come with every phrase at each token, as tokens done
    and tokens there are; which of its tokens were forced; the bank it was in; and how many
    hypotheses each bank kept."""

    label: str
    text: Text
    phrases: tuple[str, ...]
    done: tuple[tuple[tuple[int, int], ...], ...]  # (phrases, tokens)
    forced: tuple[bool, ...]
    bank: tuple[int, ...]
    banks: tuple[dict[int, int], ...]
    pinned: int | None


class Searches(NamedTuple):
    """What the figure shows."""

    searches: tuple[Progress, ...]


def needs(trace: Trace) -> bool:
    """A trace of a search that had something to put in."""
    return any("constraints" in step.notes for step in trace.steps)


@view("constraints", title="Constraints", order=61, tab="why", needs=needs)
def constraints(traces: Sequence[Trace], at: int | None = None) -> go.Figure:
    """Above, how much of every demanded phrase the best text had after each token. Below, how many
    hypotheses were kept in each bank (those that have come equally far): the best text's own bank
    is framed, by a diamond where its token was forced, that is, good enough only as part of a
    phrase.

    A phrase that is begun and then broken off starts again from nothing.
    """
    return _figure(_info(traces, at))


def _info(traces: Sequence[Trace], at: int | None = None) -> Searches:
    named_ones = zip(traces, style.labels(traces), strict=True)
    return Searches(tuple(_progress(trace, name, at) for trace, name in named_ones if needs(trace)))


def _progress(trace: Trace, label: str, at: int | None) -> Progress:
    path = best_path(trace)
    counts = [step.notes["constraints"] for step in path]
    return Progress(
        label,
        text_of(trace, path),
        _phrases(trace, len(counts[0]), spellings(trace)),
        tuple(tuple((done, of) for done, of in row) for row in zip(*counts, strict=True)),
        tuple(step.notes["forced"] for step in path),
        tuple(step.notes["bank"] for step in path),
        _banks(trace.steps)[: len(path)],
        None if at is None else pinned(trace, path, at),
    )


def _banks(steps: Sequence[Step]) -> tuple[dict[int, int], ...]:
    """For every length how many hypotheses were kept, by their bank."""
    depth: dict[int | None, int] = {None: 0}
    kept: dict[int, Counter[int]] = defaultdict(Counter)
    for step in steps:
        depth[step.id] = depth[step.parent] + 1
        if step.event != "pruned":
            kept[depth[step.id]][step.notes["bank"]] += 1
    return tuple(dict(kept[length]) for length in sorted(kept))


def _phrases(trace: Trace, count: int, known: Spellings) -> tuple[str, ...]:
    """What must appear, one of each phrase's spellings; a number where the trace has none."""
    demanded = [
        item if isinstance(item[0], list | tuple) else [item]
        for name in ("force_words", "force_words_ids")
        for item in trace.settings.get(name) or ()
    ]
    names = [f"phrase {number}" for number in range(1, count + 1)]
    for number, ways in enumerate(demanded[:count]):
        spelled = [way for way in ways if all(token in known for token in way)]
        if spelled:
            names[number] = "".join(known[token] for token in spelled[0]).strip()
    return tuple(names)


def _figure(info: Searches) -> go.Figure:
    words = Words(
        "Constraints",
        "above: tokens done of each phrase · below: hypotheses kept in each bank",
        "token",
        "phrase",
    )
    heights = [
        rows * _ROW for each in info.searches for rows in (len(each.phrases), 1 + _highest(each))
    ]
    figure = stacked(words, heights, bottom=150)
    written(figure, [each.text for each in info.searches for _ in range(2)])
    for number, each in enumerate(info.searches):
        upper, lower = 2 * number + 1, 2 * number + 2
        figure.add_trace(_phrase_map(each), row=upper, col=1)
        figure.add_traces([_bank_map(each), *_own_banks(each, number)], rows=lower, cols=1)
        names = [style.escape(phrase[:16]) for phrase in each.phrases]
        figure.update_yaxes(leveled(names), row=upper)
        banks = [str(bank) for bank in range(1 + _highest(each))]
        figure.update_yaxes(leveled(banks), title="bank", row=lower)
        figure.add_annotation(headline(named(each.label), upper))
        figure.add_annotation(headline("hypotheses kept in each bank", lower))
        if each.pinned is not None:
            place = each.text.first + each.pinned
            for row in (upper, lower):
                outlined(figure, row, (place - 0.5, place + 0.5), None)
    # The numbers are in the cells: no key to the colours is needed.
    most = max((max(kept.values()) for each in info.searches for kept in each.banks), default=1)
    shared = {"colorscale": "Viridis", "showscale": False, "cmin": 0}
    figure.update_layout(coloraxis={**shared, "cmax": 1}, coloraxis2={**shared, "cmax": most})
    return figure


def _highest(each: Progress) -> int:
    return max(bank for kept in each.banks for bank in kept)


_GAPS: dict[str, Any] = {"xgap": 1, "ygap": 1, "hoverongaps": False, "hoverinfo": "text"}


def _phrase_map(each: Progress) -> go.Heatmap:
    return go.Heatmap(
        x=each.text.places,
        y=list(range(len(each.phrases))),
        z=[[done / of for done, of in row] for row in each.done],
        text=[[f"{done}/{of}" for done, of in row] for row in each.done],
        texttemplate="%{text}",
        hovertext=[
            [
                f"{_token(each, at)}<br>{style.escape(phrase)}: {done} of {of} tokens"
                for at, (done, of) in enumerate(row)
            ]
            for phrase, row in zip(each.phrases, each.done, strict=True)
        ],
        coloraxis="coloraxis",
        **_GAPS,
    )


def _token(each: Progress, at: int) -> str:
    forced = ", forced" if each.forced[at] else ""
    name = style.spelled(each.text.tokens[at])
    return f"<b>{name}</b> (token {each.text.first + at}{forced})"


def _bank_map(each: Progress) -> go.Heatmap:
    levels = range(1 + _highest(each))
    return go.Heatmap(
        x=each.text.places,
        y=list(levels),
        z=[[kept.get(bank) for kept in each.banks] for bank in levels],
        texttemplate="%{z}",
        hovertext=[
            [
                f"{_token(each, at)}<br>{kept.get(bank, 0)} hypotheses kept in bank {bank}"
                for at, kept in enumerate(each.banks)
            ]
            for bank in levels
        ],
        coloraxis="coloraxis2",
        **_GAPS,
    )


def _own_banks(each: Progress, number: int) -> list[go.Scatter]:
    """Frames around the bank of the best text; another shape where its token was forced."""
    return [
        go.Scatter(
            x=[
                place
                for place, own in zip(each.text.places, each.forced, strict=True)
                if own == is_forced
            ],
            y=[bank for bank, own in zip(each.bank, each.forced, strict=True) if own == is_forced],
            mode="markers",
            marker={
                **{"symbol": symbol, "size": 24, "color": style.VERMILLION},
                "line": {"width": 2.5},
            },
            hoverinfo="skip",
            name=name,
            legendgroup=name,
            showlegend=number == 0,
        )
        for name, symbol, is_forced in (
            ("the best text", "square-open", False),
            ("the best text, by a forced token", "diamond-open", True),
        )
    ]
