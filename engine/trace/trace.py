"""The trace: the record of everything a run did.

Standard library only. A trace can be saved, shared and opened again without a model.

    Trace ── prompt (Token, …)
          ├─ steps (Step, …)          a tree: every step names its parent, so one structure holds
          │    └─ distribution        a chain, a beam tree and a draft with its rejections
          │         └─ candidates
          ├─ ticks (Tick, …)          costs, one entry per round of the loop
          └─ sequences (Sequence, …)  what was returned, best first
"""

from __future__ import annotations

import json
from collections import abc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.trace.file_format import decode, encode, parse
from engine.trace.types import Sequence, Step, Stop, Tick, Token


@dataclass(frozen=True)
class Trace:
    """A whole run.

    ``prefix`` is text after the prompt that the run continued from; steps and sequences do not
    include it.
    """

    strategy: str
    settings: Mapping[str, Any]
    seed: int
    model: str
    prompt: str
    prompt_tokens: tuple[Token, ...]
    steps: abc.Sequence[Step]  # built on first access
    ticks: tuple[Tick, ...]
    sequences: tuple[Sequence, ...]
    stop: Stop
    error: str | None = None
    prefix: tuple[Token, ...] = ()

    @property
    def text(self) -> str:
        """The best sequence's text, empty when nothing was returned."""
        return self.sequences[0].text if self.sequences else ""

    @property
    def forward_passes(self) -> int:
        """The model's forward passes for this run, without those of a draft model."""
        return sum(tick.forward_passes for tick in self.ticks)

    @property
    def draft_passes(self) -> int:
        """A draft model's forward passes for this run."""
        return sum(tick.draft_passes for tick in self.ticks)

    @property
    def nodes(self) -> int:
        """Tokens the model evaluated for this run."""
        return sum(tick.nodes for tick in self.ticks)

    @property
    def seconds(self) -> float:
        """Wall time of the run."""
        return sum(tick.ms for tick in self.ticks) / 1000

    def path(self, step: int | None) -> tuple[Step, ...]:
        """The steps from the prompt to ``step``, first token first."""
        path: list[Step] = []
        while step is not None:
            path.append(self.steps[step])
            step = path[-1].parent
        return tuple(reversed(path))

    def to_json(self) -> str:
        """The trace as compact JSON; `from_json` returns an equal trace."""
        return json.dumps(encode(vars(self)), separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Trace:
        """Read what `to_json` wrote."""
        return Trace(**decode(parse(text)))

    def save(self, path: str | Path) -> None:
        """Write the trace to a file."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Read a trace from a file; no model is needed."""
        return Trace.from_json(Path(path).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Update:
    """The steps of one run that are new or changed since its last update.

    ``lead`` is the last step of the text to show now; it may move to another branch. The run's last
    update has its ``trace``.
    """

    run: int
    steps: abc.Sequence[Step]
    lead: int | None
    trace: Trace | None = None


def dump_traces(traces: Iterable[Trace]) -> str:
    """The traces of a comparison as one file: a JSON list, one trace per line."""
    return "[" + ",\n".join(trace.to_json() for trace in traces) + "]\n"


def load_traces(text: str) -> list[Trace]:
    """The traces of a file that holds one trace or a list of them."""
    data = parse(text)
    items = data if isinstance(data, list) else [data]
    return [Trace(**decode(item)) for item in items]
