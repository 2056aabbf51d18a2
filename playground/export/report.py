"""The HTML report of a comparison: one self-contained file that needs no server and no network.

The report shows only what the traces hold. Texts of runs are untrusted: the template escapes them,
or they are JSON that the page's script inserts as text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from bisect import bisect
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from engine.errors import PlaygroundError
from engine.trace import Sequence as Returned
from engine.trace import Step, Stop, Trace
from playground import metrics
from playground.export.beam_trees import beam_trees
from playground.export.bundle import bundle

_BOUNDS = (0.01, 0.1, 0.5, 0.9)  # between the tints p0 to p4, by the model's probability
_TINTS = ("below 1%", "1 to 10%", "10 to 50%", "50 to 90%", "above 90%")
_CANDIDATES = 8  # on a token's card
_SCRIPT = Path(__file__).with_name("report.js")
_TOP = 50  # margin above a figure, whose title is a heading of the page


def report(traces: Sequence[Trace], title: str = "Decoding Playground") -> str:
    """The traces side by side: texts token by token, settings, costs and figures."""
    try:
        import jinja2  # only reports need Jinja2 and Plotly
        from markupsafe import Markup
        from plotly.offline import get_plotlyjs

        import visualizers
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package not in ("jinja2", "plotly"):
            raise
        raise PlaygroundError(f"a report needs {package}: pip install {package}") from error

    drawn = {view: view.draw_or_log(traces) for view in visualizers.applicable(traces)}
    views = [view for view, figure in drawn.items() if figure is not None]
    paths = [visualizers.best_path(trace) for trace in traces]
    names = visualizers.labels(traces)
    cards = [[_card(step, visualizers.visible) for step in path] for path in paths]
    figures = {view.id: _figure(drawn[view]) for view in views}
    trees = beam_trees(traces, names)
    scripts = [*([get_plotlyjs()] if views else []), bundle(_SCRIPT)]
    if trees:
        scripts.append(trees.script)
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    same_prompt = len({trace.prompt for trace in traces}) == 1
    page = jinja2.Environment(autoescape=True).from_string(_file("report.html"))
    return page.render(
        title=title,
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; "
        f"script-src {hashes}",
        style=Markup(_file("report.css")),
        prompt=traces[0].prompt if same_prompt else None,
        legend=_legend(paths),
        runs=[
            {
                "name": name,
                "prompt": None if same_prompt else trace.prompt,
                "error": trace.error,
                "tokens": [_token(step) for step in path],
                "facts": _facts(trace),
                "sequences": [_sequence(sequence) for sequence in trace.sequences],
            }
            for trace, name, path in zip(traces, names, paths, strict=True)
        ],
        trees=trees and {"panel": Markup(trees.panel), "style": Markup(trees.style)},
        views=views,
        data={
            "runs": Markup(_json(cards)),
            "figures": Markup(_json(figures)),
            **({"trees": Markup(_json(trees.runs))} if trees else {}),
        },
        scripts=[Markup(script) for script in scripts],
    )


def _token(step: Step) -> dict[str, Any]:
    """A token of the text; one that adds no characters is shown by its name."""
    probability = step.probability
    return {
        "lines": (step.text or step.token.text).split("\n"),
        "special": not step.text,
        "tint": "unseen" if probability is None else f"p{bisect(_BOUNDS, probability)}",
        "bar": f"{probability or 0:.1%}",
    }


def _facts(trace: Trace) -> dict[str, str]:
    settings = [
        f"{name} = {json.dumps(value, default=str)}" for name, value in trace.settings.items()
    ]
    headline = {name: value for name, value, _ in metrics.headline(trace)}
    drafting: dict[str, str] = {
        name: headline[name] for name in ("draft passes", "accepted") if name in headline
    }
    return {
        "strategy": trace.strategy,
        "settings": "\n".join(settings) or "none",
        "seed": str(trace.seed),
        "model": trace.model,
        "prompt tokens": f"{len(trace.prompt_tokens):,}",
        "ended by": _rule(trace.stop),
        "forward passes": f"{trace.forward_passes:,} for {trace.nodes:,} tokens",
        **drafting,
        "time": f"{trace.seconds:.2f} s",
    }


def _sequence(sequence: Returned) -> dict[str, str]:
    score = "" if sequence.score is None else f"score {sequence.score:.4f}, "
    details = f"{score}{len(sequence.token_ids):,} tokens, ended by {_rule(sequence.stop)}"
    return {"text": sequence.text, "details": details}


def _rule(stop: Stop) -> str:
    return f"{stop.rule} ({stop.detail})" if stop.detail else stop.rule


def _legend(paths: Sequence[Sequence[Step]]) -> list[dict[str, str]]:
    steps = [step for path in paths for step in path]
    if not steps:
        return []
    swatches = [{"tint": f"p{place}", "label": label} for place, label in enumerate(_TINTS)]
    if any(step.raw is None for step in steps):
        swatches.append({"tint": "unseen", "label": "not captured"})
    return swatches


def _card(step: Step, visible: Callable[[str], str]) -> dict[str, Any]:
    """What the page's script shows about a token; None is "not captured"."""
    token = {"token": visible(step.token.text), "event": step.event}
    given = step.distribution
    if given is None:
        return {**token, "seen": False}
    return {
        **token,
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


def _figure(figure: Any) -> Any:
    """A figure as JSON values, without its title, which the page shows as a heading."""
    top, height = figure.layout.margin.t, figure.layout.height
    if top is not None and height is not None:
        figure.update_layout(height=height - (top - _TOP))
    figure.update_layout(title=None, margin={"t": _TOP})
    return json.loads(figure.to_json())


def _json(value: Any) -> str:
    """JSON for a script element; no text in it can end the element."""
    return json.dumps(value).replace("<", "\\u003c")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
