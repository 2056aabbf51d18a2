"""The parts of a trace: tokens, distributions, steps, ticks, stops and returned sequences.

Standard library only, frozen, tuples inside, no tensors.
"""

from __future__ import annotations

import math
from collections import abc
from collections.abc import Mapping
from dataclasses import dataclass
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
