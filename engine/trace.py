"""What a run did: the one record that strategies write and everything else reads.

Standard library only, frozen, tuples inside, no tensors. It knows how to become JSON and come
back; it refuses to draw itself and never holds a vocabulary row.

    Trace ── prompt (Token, …)
          ├─ steps (Step, …)          a trie: every step names its parent, so one shape holds
          │    └─ distribution        a chain, a beam tree and a draft with its rejections
          │         └─ candidates
          ├─ ticks (Tick, …)          the ledger of costs: totals are their sums
          └─ sequences (Sequence, …)  what was returned, best first
"""

from __future__ import annotations

import math
from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

# The last thing that happened to a step.
EVENTS = (
    "chosen",  # taken by a strategy that follows one path, or kept as a running beam
    "pruned",  # a candidate that lost its place
    "finished",  # ended a hypothesis
    "drafted",
    "accepted",
    "rejected",
    "resampled",
    "bonus",
    "returned",  # ended a hypothesis that is one of the returned sequences
    "given",  # a token of a text that was there: scored, not chosen
)


@dataclass(frozen=True)
class Token:
    """A token id and its spelling: spaces kept, bytes that are no character alone as ``<0xF0>``."""

    id: int
    text: str


class Candidate(NamedTuple):
    """One token a distribution could have given, and its probability at every stage.

    A tuple, as there are many: a dataclass takes longer to make.
    """

    token: Token
    raw: float  # as the model gave it
    stages: tuple[float, ...]  # after each of the distribution's processors; 0.0 = cut
    final: float  # as the strategy used it; 0.0 = cut


@dataclass(frozen=True)
class Distribution:
    """The next-token distribution at one place, from the model's own to the one finally used.

    Entropies are in nats. ``candidates`` are the most probable tokens before and after the
    processors, so that what was cut stays visible; ``kept`` counts the tokens that still could
    have been chosen.

    Of each processor ``kept_after`` counts the tokens it left, and ``cutoffs`` has the smallest
    probability before it of a token it kept (None where it cut none). ``raw_varentropy`` is the
    variance of the model's surprisal, in square nats. Traces of version 1 have none of the three.
    """

    candidates: abc.Sequence[Candidate]  # made when somebody first looks at them
    processors: tuple[str, ...]
    raw_entropy: float
    final_entropy: float
    kept: int
    raw_varentropy: float | None = None
    kept_after: tuple[int, ...] = ()
    cutoffs: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Step:
    """One token at one place of the run's trie.

    ``raw`` and ``final`` are log-probabilities of this token, as the model gave it and as the
    strategy used it (None: a processor had cut it). ``rank`` counts from 1 in the model's own
    order. ``text`` is what the token adds to its path: empty while a character is still
    incomplete. ``notes`` hold the numbers only this strategy knows.

    A decoding of somebody's own may take tokens in ways that cannot be seen: then there is no
    ``distribution``, nor a ``raw`` and a ``rank``. Nor are there any of a token in a tree of drafts
    that nobody judged.
    """

    id: int
    parent: int | None
    tick: int
    token: Token
    text: str
    event: str
    raw: float | None
    final: float | None
    rank: int | None
    distribution: Distribution | None
    notes: Mapping[str, Any]

    @property
    def probability(self) -> float | None:
        """What the model gave the token."""
        return None if self.raw is None else math.exp(self.raw)

    @property
    def used(self) -> float | None:
        """The probability the token finally had; None where it was cut or nobody saw."""
        return None if self.final is None else math.exp(self.final)


@dataclass(frozen=True)
class Tick:
    """What one round of asking the model cost this run.

    ``forward_passes`` counts calls of the model made for this run, processors' own calls included,
    ``draft_passes`` those of a draft model or of the model's first layers, ``nodes`` the tokens
    evaluated by either. ``ms`` is wall time from the previous tick to this one's
    decision, whoever else shared it.
    """

    forward_passes: int
    nodes: int
    ms: float
    draft_passes: int = 0


@dataclass(frozen=True)
class Stop:
    """The rule that ended something: ``end_token``, ``stop_string``, ``length``, ``time``,
    ``cancelled``, ``error``, a strategy's own rule, or the class name of a caller's stopping
    criterion; ``detail`` says which one."""

    rule: str
    detail: str = ""


@dataclass(frozen=True)
class Sequence:
    """A returned sequence: new tokens only. ``steps`` is its path through the trace."""

    token_ids: tuple[int, ...]
    text: str
    steps: tuple[int, ...]
    stop: Stop
    score: float | None = None


@dataclass(frozen=True)
class Trace:
    """A whole run.

    ``prefix`` is what stood after the prompt before the run began, where it goes on from a text
    that was there: steps and sequences tell of what came after it.
    """

    strategy: str
    settings: Mapping[str, Any]
    seed: int
    model: str
    prompt: str
    prompt_tokens: tuple[Token, ...]
    steps: abc.Sequence[Step]  # made when somebody first looks at them
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
        """Model calls made for this run, those of a draft model apart."""
        return sum(tick.forward_passes for tick in self.ticks)

    @property
    def draft_passes(self) -> int:
        """Calls of a draft model made for this run."""
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
        """The trace as compact JSON; ``from_json`` gives an equal trace back."""
        from engine.trace_json import write  # the format knows the record, not the other way round

        return write(self)

    @staticmethod
    def from_json(text: str) -> Trace:
        """Read what ``to_json`` wrote."""
        from engine.trace_json import read

        return read(text)

    def save(self, path: str | Path) -> None:
        """Write the trace to a file."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> Trace:
        """Read a trace from a file; no model is needed."""
        return Trace.from_json(Path(path).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Update:
    """News of one run while it goes on: the steps that are new or changed since the last update.

    ``lead`` is the last step of the text to show now; it may move to another branch. ``trace``
    comes with the last update of the run.
    """

    run: int
    steps: abc.Sequence[Step]
    lead: int | None
    trace: Trace | None = None
