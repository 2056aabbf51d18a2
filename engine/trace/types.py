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
    "chosen",  # picked on a single path, or kept as a running beam
    "pruned",  # a candidate that was dropped
    "finished",  # ended a hypothesis
    "drafted",
    "accepted",
    "rejected",
    "resampled",
    "bonus",
    "returned",  # ended a hypothesis that is one of the returned sequences
    "given",  # a token of a given text: scored, not chosen
)


@dataclass(frozen=True)
class Token:
    """A token id and its text: spaces are kept, partial UTF-8 characters written as ``<0xF0>``."""

    id: int
    text: str


class Candidate(NamedTuple):
    """One possible next token, and its probability at every stage.

    A tuple, because there are many and a dataclass takes longer to build.
    """

    token: Token
    raw: float | None  # as the model gave it; None = not captured
    stages: tuple[float, ...]  # after each of the distribution's processors; 0.0 = cut
    final: float  # as the strategy used it; 0.0 = cut
    # The random number of its draw: the largest probability / noise wins. None = no draw was
    # captured.
    noise: float | None = None


@dataclass(frozen=True)
class Distribution:
    """The next-token distribution at one step, from the model's own to the one finally used.

    Entropies are in nats. ``candidates`` are the most probable tokens before and after the
    processors, so that tokens that were cut stay visible; ``kept`` counts the tokens that could
    still have been chosen.

    ``kept_after`` counts the tokens that each processor left, and ``cutoffs`` has the smallest
    probability before it of a token it kept (None where it cut none). ``raw_varentropy`` is the
    variance of the model's surprisal, in square nats. Traces of version 1 have none of the three.

    ``raw_entropy``, ``raw_varentropy`` and the candidates' ``raw`` are None where custom decoding
    code used the model in a way that was not captured.
    """

    candidates: abc.Sequence[Candidate]  # built on first access
    processors: tuple[str, ...]
    raw_entropy: float | None
    final_entropy: float
    kept: int
    raw_varentropy: float | None = None
    kept_after: tuple[int, ...] = ()
    cutoffs: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Step:
    """One token in the run's tree of tokens.

    ``raw`` and ``final`` are log-probabilities of this token, as the model gave it and as the
    strategy used it (None: a processor had cut it). ``rank`` counts from 1 in the model's own
    order. ``text`` is what the token adds to the text: empty while a character is incomplete.
    ``notes`` are the strategy's own numbers.

    ``raw``, ``rank`` and ``distribution`` are None where they were not captured: in custom decoding
    code, and for drafted tokens of a tree that were discarded after a rejection.
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
        """The model's probability of the token; None where it was not captured."""
        return None if self.raw is None else math.exp(self.raw)

    @property
    def used(self) -> float | None:
        """The probability the token finally had; None where it was cut or not captured."""
        return None if self.final is None else math.exp(self.final)


@dataclass(frozen=True)
class Tick:
    """What one round of the loop cost this run.

    ``forward_passes`` counts the model's forward passes for this run, those of processors included,
    ``draft_passes`` those of a draft model or of the model's first layers, ``nodes`` the tokens
    evaluated by either. ``ms`` is the wall time since the previous tick, shared with all runs of
    the comparison. ``decided_ms`` is the part of it until the first token was picked: what follows
    is the strategy's own work, for example drafting. None where no token was picked, and in traces
    of earlier versions.

    The runs of a comparison share the model's passes. ``pass_nodes`` counts the tokens that the
    model evaluated in this round for all of them, ``own_nodes`` this run's part: a token that
    several runs need is divided among them. ``prompt_nodes`` are the tokens of the prompt that this
    run evaluated; it is 0 for runs that find it evaluated. All three are None in traces of earlier
    versions.
    """

    forward_passes: int
    nodes: int
    ms: float
    draft_passes: int = 0
    decided_ms: float | None = None
    prompt_nodes: int | None = None
    pass_nodes: int | None = None
    own_nodes: float | None = None


@dataclass(frozen=True)
class Stop:
    """The rule that ended something: ``end_token``, ``stop_string``, ``length``, ``time``,
    ``cancelled``, ``error``, a strategy's own rule, or the class name of a caller's stopping
    criterion; ``detail`` says which one."""

    rule: str
    detail: str = ""


@dataclass(frozen=True)
class Sequence:
    """A returned sequence, new tokens only; ``steps`` are their ids in the trace."""

    token_ids: tuple[int, ...]
    text: str
    steps: tuple[int, ...]
    stop: Stop
    score: float | None = None
