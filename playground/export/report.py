"""One self-contained HTML page about a comparison: no server, no model, no network to read it.

Knows HTML and reads traces. Refuses to compute anything about a run: what is not in the trace is
not in the report. Texts of runs are untrusted: they reach the page escaped, or as JSON that the
page's script shows as text. Only writing a report needs plotly, so it is imported only then.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from bisect import bisect
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any

from engine.errors import PlaygroundError
from engine.trace import Sequence as Returned
from engine.trace import Step, Stop, Trace
from playground import metrics

_BOUNDS = (0.01, 0.1, 0.5, 0.9)  # between the classes p0 to p4, by the model's own probability
_CLASSES = ("below 1%", "1 to 10%", "10 to 50%", "50 to 90%", "above 90%")
_CANDIDATES = 8  # on a token's card


def report(traces: Sequence[Trace], title: str = "Decoding Playground") -> str:
    """The traces side by side as one HTML page: texts token by token, settings, costs, figures."""
    try:
        import visualizers
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "plotly":
            raise
        raise PlaygroundError("a report needs plotly to draw: pip install plotly") from error

    views = visualizers.applicable(traces)
    paths = [visualizers.best_path(trace) for trace in traces]
    prompts = {trace.prompt for trace in traces}
    body = [
        _tag("h1", title),
        *(_prompt(prompt) for prompt in prompts if len(prompts) == 1),
        *([_legend(paths)] if any(paths) else []),
        _runs(traces, visualizers.labels(traces), paths),
        *(_section(view.id, view.title, view.summary) for view in views),
        _tag("footer", "Every number on this page was recorded during the run it tells of."),
        _data("runs", json.dumps([_cards(path, visualizers.visible) for path in paths])),
        _data("figures", _figures({view.id: view.draw(traces) for view in views})),
    ]
    scripts = [*([_plotly()] if views else []), _file("report.js")]
    return _page(title, "".join(body), scripts)


class _Markup(str):
    """Text that is HTML already; any other text is escaped on its way into a tag."""

    __slots__ = ()


def _tag(name: str, *children: str, **attributes: str) -> _Markup:
    marks = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"'
        for key, value in attributes.items()
    )
    inside = "".join(
        child if isinstance(child, _Markup) else html.escape(child) for child in children
    )
    return _Markup(f"<{name}{marks}>{inside}</{name}>")


def _prompt(text: str) -> _Markup:
    return _tag("p", text, class_="prompt")


def _runs(
    traces: Sequence[Trace], names: Sequence[str], paths: Sequence[Sequence[Step]]
) -> _Markup:
    """One column per trace; each has its own prompt where they differ."""
    differ = len({trace.prompt for trace in traces}) > 1
    columns = [
        _tag(
            "article",
            _tag("h2", name),
            *([_prompt(trace.prompt)] if differ else []),
            *([_tag("p", trace.error, class_="error")] if trace.error else []),
            _text(path, name, place),
            _facts(trace),
            *_returned(trace),
        )
        for place, (trace, name, path) in enumerate(zip(traces, names, paths, strict=True))
    ]
    return _tag("main", *columns, class_="runs")


def _text(path: Sequence[Step], name: str, place: int) -> _Markup:
    tokens = [_token(step, at) for at, step in enumerate(path)]
    label = f"The text of {name}, token by token"
    return _tag(
        "div", *tokens, class_="tokens", role="group", aria_label=label, data_run=str(place)
    )


def _token(step: Step, at: int) -> _Markup:
    """A token as it reads in the text; one that adds no character of its own shows its name."""
    text, special = (step.text, "") if step.text else (step.token.text, " special")
    newline = _tag("i", class_="newline") + "\n"
    probability = step.probability
    tint = "unseen" if probability is None else f"p{bisect(_BOUNDS, probability)}"
    return _tag(
        "span",
        _Markup(html.escape(text).replace("\n", newline)),
        class_=f"token {tint}{special}",
        style=f"--p:{probability or 0:.1%}",
        data_step=str(at),
        role="button",
        tabindex="-1" if at else "0",
    )


def _facts(trace: Trace) -> _Markup:
    settings = [
        f"{name} = {json.dumps(value, default=str)}" for name, value in trace.settings.items()
    ]
    facts = {
        "strategy": trace.strategy,
        "settings": "\n".join(settings) or "none",
        "seed": str(trace.seed),
        "model": trace.model,
        "prompt tokens": f"{len(trace.prompt_tokens):,}",
        "ended by": _rule(trace.stop),
        "forward passes": f"{trace.forward_passes:,} for {trace.nodes:,} tokens",
        **drafting(trace),
        "time": f"{trace.seconds:.2f} s",
    }
    rows = [part for name, fact in facts.items() for part in (_tag("dt", name), _tag("dd", fact))]
    return _tag("dl", *rows)


def drafting(trace: Trace) -> dict[str, str]:
    """What a run that wrote ahead says of its drafts; nothing where nobody drafted."""
    told = {name: value for name, value, _ in metrics.headline(trace)}
    return {name: told[name] for name in ("draft passes", "accepted") if name in told}


def _returned(trace: Trace) -> list[_Markup]:
    if not trace.sequences:
        return []
    return [_tag("h3", "Returned, best first"), _tag("ol", *map(_sequence, trace.sequences))]


def _sequence(sequence: Returned) -> _Markup:
    score = "" if sequence.score is None else f"score {sequence.score:.4f}, "
    length = len(sequence.token_ids)
    about = f"{score}{length:,} tokens, ended by {_rule(sequence.stop)}"
    return _tag("li", _tag("span", sequence.text), _tag("small", about))


def _rule(stop: Stop) -> str:
    return f"{stop.rule} ({stop.detail})" if stop.detail else stop.rule


def _legend(paths: Sequence[Sequence[Step]]) -> _Markup:
    swatches = [
        _tag("span", words, class_=f"swatch p{number}") for number, words in enumerate(_CLASSES)
    ]
    if any(step.raw is None for path in paths for step in path):
        swatches.append(_tag("span", "not captured", class_="swatch unseen"))
    words = "Tint and bar: how probable the model found a token. "
    return _tag("p", words, *swatches, class_="legend")


def _section(id: str, title: str, summary: str) -> _Markup:
    plot = _tag("div", _tag("div", id=id), class_="scroll")
    return _tag("section", _tag("h2", title), _tag("p", summary), plot)


def _cards(steps: Sequence[Step], visible: Callable[[str], str]) -> list[dict[str, Any]]:
    """What the cards of the tokens show."""
    return [_card(step, visible) for step in steps]


def _card(step: Step, visible: Callable[[str], str]) -> dict[str, Any]:
    told = {"token": visible(step.token.text), "event": step.event}
    given = step.distribution
    if given is None:
        return {**told, "seen": False}
    return {
        **told,
        "seen": True,
        "rank": step.rank,
        "raw": step.probability,
        "final": step.used,
        "entropy": [given.raw_entropy, given.final_entropy],
        "kept": given.kept,
        "candidates": [
            [visible(item.token.text), item.raw, item.final, item.token == step.token]
            for item in given.candidates[:_CANDIDATES]
        ],
    }


def _figures(figures: dict[str, Any]) -> str:
    """The figures as JSON, without the titles that the page gives them in words that wrap."""
    for figure in figures.values():
        spare = figure.layout.margin.t - 50
        figure.update_layout(title=None, margin={"t": 50})
        if figure.layout.height:
            figure.update_layout(height=figure.layout.height - spare)
    inside = ",".join(f"{json.dumps(id)}:{figure.to_json()}" for id, figure in figures.items())
    return f"{{{inside}}}"


def _data(id: str, text: str) -> _Markup:
    """JSON that no text inside can end: `<` begins every tag and is never needed bare."""
    safe = _Markup(text.replace("<", "\\u003c"))
    return _tag("script", safe, type="application/json", id=id)


def _page(title: str, body: str, scripts: Sequence[str]) -> str:
    """The document; its policy lets these scripts run and nothing else, and no request leave."""
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src {hashes}"
    )
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            _tag("title", title),
            _tag("style", _Markup(_file("report.css"))),
            f'</head><body>{body}<div id="card" role="tooltip" hidden></div>',
            *(_tag("script", _Markup(script)) for script in scripts),
            "</body></html>",
        ]
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())
