"""The beam trees of an HTML report: the page's own tree scripts and styles on the runs' steps.

The page and the report share one implementation of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.trace import Step, Trace
from playground.export.bundle import bundle

_SCRIPT = Path(__file__).with_name("report_trees.js")
_WEB = Path(__file__).parents[1] / "ui" / "shared" / "web"

# The theme's variables of the page, in the report's colours.
_THEME = """
  --body-text-color: var(--ink);
  --body-text-color-subdued: var(--quiet);
  --background-fill-primary: var(--page);
  --background-fill-secondary: var(--panel);
  --block-background-fill: var(--page);
  --border-color-primary: var(--line);
  --color-accent: #4f46e5;
  --font: system-ui, sans-serif;
  --font-mono: ui-monospace, Consolas, "DejaVu Sans Mono", monospace;
  --radius-md: 6px;
  --radius-lg: 8px;
  --text-sm: 0.85rem;
  --text-lg: 1.05rem;
"""
_DARK = """
  --color-accent: #818cf8;
  .trees { --kept: #56b4e9; --finished: #e69f00; --returned: #009e73; }
"""


class BeamTrees(NamedTuple):
    """The parts of a report that show trees: data, an empty panel, its style, and the script that
    draws the trees into the panel."""

    runs: list[dict[str, Any]]
    panel: str
    style: str
    script: str


def beam_trees(traces: Sequence[Trace], titles: Sequence[str]) -> BeamTrees | None:
    """The trees of the traces that branched; None if no trace did."""
    named = zip(traces, titles, strict=True)
    runs = [_run(trace, title) for trace, title in named if _branched(trace)]
    if not runs:
        return None
    styles = "\n".join(_read(name) for name in ("toolbar.css", "tree_panel.css"))
    style = (
        f"#beam-trees {{ {_THEME} {styles} }}\n"
        f"@media (prefers-color-scheme: dark) {{ #beam-trees {{ {_DARK} }} }}"
    )
    return BeamTrees(runs, _read("tree_panel.html"), style, bundle(_SCRIPT))


def _branched(trace: Trace) -> bool:
    """Whether two steps have one parent, or several sequences were returned."""
    parents = [step.parent for step in trace.steps]
    return len(trace.sequences) > 1 or len({*parents}) < len(parents)


def _run(trace: Trace, title: str) -> dict[str, Any]:
    processors: dict[tuple[str, ...], int] = {}
    penalty = trace.settings.get("length_penalty")
    return {
        "title": title,
        "steps": [_step(step, processors) for step in trace.steps],
        "processors": [*processors],
        "prefix": len(trace.prefix),
        "sequences": [
            {
                "lead": sequence.steps[-1] if sequence.steps else None,
                "score": None if sequence.score is None else f"{sequence.score:.4f}",
            }
            for sequence in trace.sequences
        ],
        "lengthPenalty": penalty if isinstance(penalty, int | float) else None,
    }


def _step(step: Step, processors: dict[tuple[str, ...], int]) -> dict[str, Any]:
    names = None if step.distribution is None else tuple(step.distribution.processors)
    at = None if names is None else processors.setdefault(names, len(processors))
    # Long lists are for other figures.
    notes = {name: value for name, value in step.notes.items() if _short(name, value)}
    return {
        "id": step.id,
        "parent": step.parent,
        "tokenId": step.token.id,
        "token": step.token.text,
        "event": step.event,
        "raw": step.probability,
        "final": step.used,
        "rank": step.rank,
        "at": at,
        "notes": notes,
    }


def _short(name: str, value: Any) -> bool:
    return name == "constraints" or isinstance(value, bool | int | float | str)


def _read(name: str) -> str:
    return (_WEB / name).read_text(encoding="utf-8")
