"""Speculation: a draft proposes tokens, the model judges them all in one pass.

Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding": a token x that
was drawn from q is kept with probability min(1, p(x) / q(x)); the first one that is not gives way
to a draw from the residual max(0, p - q), normalised. What is kept is distributed as p.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.run import Node, Pick, Run
from engine.strategy import Ask, Decoding


@dataclass(frozen=True, eq=False)
class Proposal:
    """Drafted tokens. ``q`` are the distributions they were drawn from, (drafted, vocab), where
    there were any; ``notes`` say what else is known of each."""

    tokens: Sequence[int] = ()
    q: Tensor | None = None
    notes: Sequence[Mapping[str, Any]] = ()


# Drafts after the tokens written so far, at most so many, in the round of this number.
Drafter = Callable[[list[int], int, int], Generator[Sequence[Ask], list[Node], Proposal]]


class Verdict(NamedTuple):
    """How many drafted tokens were kept, the token that follows them, and how that came about."""

    accepted: int
    token: int
    draws: list[float] | None = None  # the random number of each drafted token
    residual: Tensor | None = None  # (vocab,) what the token was drawn from after a rejection


def speculate(
    run: Run, draft: Drafter, *, do_sample: bool, heard: Callable[[bool], None] | None = None
) -> Decoding:
    """Draft, judge, keep what holds, until the text ends; ``heard`` is told if all was kept."""
    node, pending = run.root, list[int]()  # what is evaluated, and the token after it that is not
    written: list[int] = []
    longest = run.config.max_length - len(run.root.ids)
    number = 0
    while True:
        number += 1
        # One place is left for the token the model itself adds.
        proposal = yield from draft(written, longest - len(written) - 1, number)
        path = [*pending, *proposal.tokens]
        asks: list[Ask] = [(node, *path[:end]) for end in range(1, len(path) + 1)]
        evaluated = (yield asks) if asks else []
        chain = [node, *evaluated][len(pending) :]  # before each drafted token, and after the last
        scores = run.scores(chain)  # (drafted + 1, vocab)
        p = scores.softmax(-1)
        if do_sample and proposal.q is not None:
            verdict = _weigh(run, p, proposal.tokens, proposal.q)
        elif do_sample:
            own = run.draw(p)[:, 0]
            verdict = _match(own.tolist(), proposal.tokens)
        else:
            verdict = _match(scores.argmax(-1).tolist(), proposal.tokens)
        kept = list(proposal.tokens[: verdict.accepted])
        if heard and proposal.tokens:
            heard(len(kept) == len(proposal.tokens))

        stops = run.stops(chain[: len(kept)], kept)
        ended = next((place for place, stop in enumerate(stops) if stop), None)
        steps = run.record(_told(chain, proposal, verdict, p, number, ended))
        if ended is not None and (stop := stops[ended]):
            run.show([steps[ended]])
            return run.finish([(steps[ended], None, stop)], stop)

        after = chain[len(kept)]
        if verdict.residual is not None:
            run.reshape(after, "residual", verdict.residual.log())
        event = "chosen" if not proposal.tokens else "bonus" if after is chain[-1] else "resampled"
        step = run.choose(after, verdict.token, event, round=number, verdict=event)
        run.show([step])
        [stop] = run.stops([after], [verdict.token])
        if stop:
            return run.finish([(step, None, stop)], stop)
        written += [*kept, verdict.token]
        node, pending = after, [verdict.token]


def _match(own: Sequence[int], drafted: Sequence[int]) -> Verdict:
    """Keep drafted tokens for as long as they are what the model itself takes."""
    matches = [token == ours for token, ours in zip(drafted, own, strict=False)]
    accepted = [*matches, False].index(False)
    return Verdict(accepted, own[accepted])


def _weigh(run: Run, p: Tensor, drafted: Sequence[int], q: Tensor) -> Verdict:
    """Keep a token with probability min(1, p/q); replace the first lost one from the residual."""
    draws = torch.rand(len(drafted), generator=run.generator, device=p.device)
    # Draws are from [0, 1): one of 0 must not keep a token that the processors have cut.
    holds = draws < _of(drafted, p) / _of(drafted, q)
    accepted = [*holds.tolist(), False].index(False)
    left, residual = p[accepted], None
    if accepted < len(drafted):
        rest = (left - q[accepted]).clamp(min=0)
        total = rest.sum()
        # Where p and q differ by rounding alone nothing is left over, and p itself is right.
        left = residual = rest / total if total > 0 else left
    token = int(run.draw(left))
    return Verdict(accepted, token, draws.tolist(), residual)


def _told(
    chain: Sequence[Node],
    proposal: Proposal,
    verdict: Verdict,
    p: Tensor,
    number: int,
    ended: int | None,
) -> list[Pick]:
    """Every drafted token with what became of it.

    What stands behind a rejected token, or behind the end of the text, is ignored: nobody judged
    it.
    """
    if not proposal.tokens:
        return []
    accepted = verdict.accepted if ended is None else ended + 1
    kept_by = _of(proposal.tokens, p).tolist()
    drawn_by = None if proposal.q is None else _of(proposal.tokens, proposal.q).tolist()
    picks = []
    for place, token in enumerate(proposal.tokens):
        lost = place == accepted and ended is None
        fate = "accepted" if place < accepted else "rejected" if lost else "ignored"
        notes: dict[str, Any] = {"round": number, "verdict": fate, "p": _short(kept_by[place])}
        if drawn_by:
            notes["q"] = _short(drawn_by[place])
        if verdict.draws is not None and fate != "ignored":
            notes["draw"] = round(verdict.draws[place], 6)
        if proposal.notes:
            notes |= proposal.notes[place]
        picks.append(Pick(chain[place], token, "drafted" if fate == "ignored" else fate, notes))
    return picks


def _of(tokens: Sequence[int], probs: Tensor) -> Tensor:
    """The probability of each token at its own place, read at once: (tokens,)."""
    at = torch.tensor(tokens, device=probs.device)[:, None]
    return probs[: len(tokens)].gather(-1, at)[:, 0]


def _short(probability: float) -> float:
    return float(f"{probability:.6g}")
