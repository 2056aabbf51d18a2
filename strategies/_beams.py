"""What every kind of beam search shares: its settings, and candidates that compete for a place.

Knows sums and scores. Refuses to know who runs on and who finishes: the searches decide that.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.accel.host_future import HostFuture
from engine.run import Node, Pick, Run
from engine.settings import setting
from engine.trace import Stop
from engine.trie.backend import Best, highest

NEVER = -1.0e9  # added to a score that must not win


@dataclass(frozen=True)
class Beams:
    """What every kind of beam search is told."""

    num_beams: int = setting(5, "How many hypotheses are kept at each step.", low=1, limit="rows")
    num_return_sequences: int = setting(
        None,
        "How many of the finished hypotheses to return; at most num_beams.",
        kind=int,
        low=1,
        limit="rows",
    )
    length_penalty: float = setting(
        None,
        "A hypothesis' score is its sum of log-probabilities divided by its length to this power: "
        "above 0 favours long texts, below 0 short ones.",
        low=-10.0,
        high=10.0,
    )
    early_stopping: bool | str = setting(
        None,
        "true: end once num_beams hypotheses have finished; false: when a better one is unlikely; "
        "never: only when no better one is possible.",
        kind=object,
        choices=(False, True, "never"),
    )

    def divisor(self, length: int) -> float:
        """What a sum of log-probabilities is divided by to give the score of a text."""
        return float(length**self.length_penalty)

    def hopeful_length(self, length: int, longest: int) -> int:
        """The length at which a running beam is taken to score best."""
        hopeful = self.early_stopping == "never" and self.length_penalty > 0.0
        return longest if hopeful else length


def first_totals(width: int) -> Tensor:
    """The sums that beams start with, (beams,). All are the same text then: all but the first are
    kept from winning. Like all that is kept of candidates they are on the host: there are few."""
    return torch.tensor([0.0] + [NEVER] * (width - 1))


def with_totals(scores: Tensor, totals: Tensor) -> Tensor:
    """What each text would have in all with each token, (beams, vocab)."""
    return scores + totals[:, None].to(scores.device)


def breadth(run: Run) -> int:
    """How many candidates to look at per beam, so that enough run on whatever ends."""
    ends = run.config._eos_token_tensor
    return max(2, 1 + (0 if ends is None else len(ends)))


@dataclass(frozen=True, eq=False)
class Candidates:
    """Continuations that compete for a place among the beams."""

    parents: list[Node]
    rows: list[int]  # the beam that each continues
    tokens: list[int]
    scores: Tensor  # (candidates,) what the token adds
    sums: Tensor  # (candidates,) what the whole text has then
    stops: list[Stop | None]  # the rule that ends the text there, if any

    @staticmethod
    def at(
        run: Run, nodes: Sequence[Node], scores: Tensor, totals: Tensor, places: Tensor
    ) -> Candidates:
        """Those at some places of the flattened scores, (beams * vocab,)."""
        told = _with_scores(places, scores).cpu()
        return Candidates._of(run, nodes, totals, *_apart(told, scores))

    @staticmethod
    def best(
        run: Run, nodes: Sequence[Node], totals: Tensor, count: int
    ) -> Generator[HostFuture, Tensor, Candidates]:
        """Those with the highest sums."""
        if best := (yield from run.best(nodes, count)):
            return Candidates._of(run, nodes, totals, *_best_of(best, totals, count))
        scores = run.scores(nodes, log_probs=True)  # (beams, vocab)
        told = yield from run.ask(_best, scores, totals, count=count)
        return Candidates._of(run, nodes, totals, *_apart(told, scores))

    @staticmethod
    def _of(
        run: Run,
        nodes: Sequence[Node],
        totals: Tensor,
        rows: list[int],
        tokens: list[int],
        scores: Tensor,
    ) -> Candidates:
        parents = [nodes[row] for row in rows]
        stops = run.stops(parents, tokens)
        return Candidates(parents, rows, tokens, scores, scores + totals[rows], stops)

    def notes(self, divisor: float) -> list[dict[str, Any]]:
        """The numbers of each: its score and its parent's total give its total."""
        numbers = [self.scores, self.sums, self.sums / divisor]
        return [
            {
                "beam": row,
                "order": order,
                "score": recorded(score),
                "total": recorded(total),
                "normalized": recorded(normalized),
            }
            for order, (row, score, total, normalized) in enumerate(
                zip(self.rows, *(tensor.tolist() for tensor in numbers), strict=True)
            )
        ]

    def picks(self, events: Sequence[str], notes: Sequence[dict[str, Any]]) -> list[Pick]:
        """What to tell the trace of each."""
        return list(map(Pick, self.parents, self.tokens, events, notes))


def _best(scores: Tensor, totals: Tensor, count: int) -> Tensor:
    """The places with the highest sums, and the scores there."""
    sums = with_totals(scores, totals).flatten()
    return _with_scores(highest(sums[None], count)[0], scores)


def _best_of(best: Best, totals: Tensor, count: int) -> tuple[list[int], list[int], Tensor]:
    """Rows, tokens and scores of those, among the best tokens of each beam: no others can have the
    highest sums."""
    added = torch.tensor([scores[:count] for scores in best.log_probs])
    at = (added + totals[:, None]).flatten().topk(count).indices
    places = [divmod(place, count) for place in at.tolist()]
    tokens = [best.tokens[row][place] for row, place in places]
    return [row for row, _ in places], tokens, added.flatten()[at]


def _apart(told: Tensor, scores: Tensor) -> tuple[list[int], list[int], Tensor]:
    """Rows, tokens and scores of places and the scores there."""
    at = [divmod(place, scores.shape[-1]) for place in told[0].long().tolist()]
    return [row for row, _ in at], [token for _, token in at], told[1].to(scores.dtype)


def _with_scores(places: Tensor, scores: Tensor) -> Tensor:
    # Both in one question to the device: float64 holds either as it is.
    return torch.stack([places.double(), scores.flatten()[places].double()])


def recorded(score: float) -> float | None:
    """A score for the record, or None where the candidate was ruled out."""
    return round(score, 6) if score > NEVER / 2 else None
