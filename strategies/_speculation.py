"""Speculation: a draft proposes tokens, the model judges them all in one pass.

Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding": a token x that
was drawn from q is kept with probability min(1, p(x) / q(x)); the first one that is not gives way
to a draw from the residual max(0, p - q), normalised. What is kept is distributed as p.

A draft is a chain, or a tree: then the model takes tokens of its own from the root on, and walks as
long as they are drafted. That a token was drafted says only that what follows it is known already,
never that it is taken, so texts are distributed as p whatever the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.accel.host_future import HostFuture
from engine.run import Node, Pick, Run
from engine.strategy import Ask, Decoding


@dataclass(frozen=True, eq=False)
class Proposal:
    """Drafted tokens. ``q`` are the distributions they were drawn from, (drafted, vocab), where
    there were any; ``notes`` say what else is known of each. In a tree ``parents`` are the places
    of the tokens that stand before each, -1 before the first ones. ``nodes`` are those before the
    draft and behind each of its tokens, where the model has read it already."""

    tokens: Sequence[int] = ()
    q: Tensor | None = None
    notes: Sequence[Mapping[str, Any]] = ()
    parents: Sequence[int] | None = None
    nodes: Sequence[Node] | None = None

    @property
    def above(self) -> Sequence[int]:
        """The place before each token: a chain is a tree without branches."""
        return range(-1, len(self.tokens) - 1) if self.parents is None else self.parents


# Drafts after the tokens written so far, at most so many ahead, in the round of this number; the
# node is the last one evaluated, at which the model took the last token.
Drafter = Callable[[list[int], int, int, Node], Generator[Sequence[Ask], list[Node], Proposal]]


# What the model makes of a draft at the nodes before it and behind each of its tokens.
Judge = Callable[
    [Sequence[Node], Proposal], Generator[HostFuture, Tensor, tuple["Verdict", list[float]]]
]


class Verdict(NamedTuple):
    """The places of the drafted tokens that were kept, one behind the other, the token that follows
    them, and how that came about."""

    kept: Sequence[int]
    token: int
    draws: list[float] | None = None  # the random number of each drafted token
    residual: Tensor | None = None  # (vocab,) what the token was drawn from after a rejection


def speculate(
    run: Run,
    draft: Drafter,
    *,
    do_sample: bool,
    judge: Judge | None = None,
    heard: Callable[[bool], None] | None = None,
) -> Decoding:
    """Draft, judge, keep what holds, until the text ends; ``heard`` is told if all was kept."""
    judge = judge or partial(judged, run, do_sample)
    node, pending = run.root, list[int]()  # what is evaluated, and the token after it that is not
    written: list[int] = []
    longest = run.config.max_length - len(run.root.ids)
    number = 0
    while True:
        number += 1
        # One place is left for the token the model itself adds.
        proposal = yield from draft(written, longest - len(written) - 1, number, node)
        nodes = yield from _read(run, node, pending, proposal)
        verdict, p = yield from judge(nodes, proposal)
        kept = [proposal.tokens[place] for place in verdict.kept]
        if heard and proposal.tokens:
            heard(len(kept) == len(proposal.tokens))

        path = [nodes[0], *(nodes[place + 1] for place in verdict.kept)]
        stops = run.stops(path[:-1], kept)
        ended = next((at for at, stop in enumerate(stops) if stop), None)
        told = _told(nodes, proposal, verdict, p, number, ended)
        if ended is not None and (stop := stops[ended]):
            tip = run.record(told)[verdict.kept[ended]]
            run.show([tip])
            return run.finish([(tip, None, stop)], stop)

        after, token = path[-1], verdict.token
        event = _closing(proposal, verdict)
        closing = Pick(after, token, event, {"round": number, "verdict": event})
        if verdict.residual is None:
            step = run.record([*told, closing])[-1]
        else:
            run.record(told)
            run.reshape(after, "residual", verdict.residual.log())
            [step] = run.record([closing])
        run.show([step])
        [stop] = run.stops([after], [token])
        if stop:
            return run.finish([(step, None, stop)], stop)
        written += [*kept, token]
        node, pending = after, [token]


def _read(
    run: Run, node: Node, pending: Sequence[int], proposal: Proposal
) -> Generator[Sequence[Ask], list[Node], Sequence[Node]]:
    """The nodes before a draft and behind each of its tokens, in one pass."""
    if proposal.nodes is not None:
        yield [(proposal.nodes[0],)]  # costs nothing: a word with whoever watches
        run.charge(node.evaluator, len(proposal.nodes))
        return proposal.nodes
    asks = _asks(node, pending, proposal)
    evaluated = (yield asks) if asks else []
    return [node, *evaluated][len(pending) :]


def _asks(node: Node, pending: Sequence[int], proposal: Proposal) -> list[Ask]:
    """What to evaluate: the token that is not yet, and every drafted one behind it."""
    paths = {-1: tuple(pending)}
    for place, (above, token) in enumerate(zip(proposal.above, proposal.tokens, strict=True)):
        paths[place] = (*paths[above], token)
    return [(node, *path) for path in paths.values() if path]


def judged(
    run: Run, do_sample: bool, nodes: Sequence[Node], proposal: Proposal
) -> Generator[HostFuture, Tensor, tuple[Verdict, list[float]]]:
    """What the model makes of a draft, and the probability it gives each drafted token."""
    scores = run.scores(nodes)  # (1 + drafted, vocab)
    rows = [above + 1 for above in proposal.above]
    if not do_sample:
        told = yield from run.ask(_taken, scores, _places(rows, proposal.tokens))
        own, given = told.tensor_split([len(nodes)])
        return walk(own.long().tolist(), proposal), given.tolist()
    p = scores.softmax(-1)
    given = _of(proposal.tokens, p, rows)
    if proposal.q is not None:
        return _weigh(run, p, proposal.tokens, proposal.q), given.tolist()
    return walk(run.draw(p)[:, 0].tolist(), proposal), given.tolist()


def _taken(scores: Tensor, drafted: Tensor) -> Tensor:
    """The most probable token of each row, then the probability of each drafted one, which is given
    as its row and itself, (2, drafted): float64 holds both as they are."""
    row, token = drafted
    given = scores.softmax(-1)[row, token]
    return torch.cat([scores.argmax(-1).double(), given.double()])


def walk(own: Sequence[int], proposal: Proposal) -> Verdict:
    """Keep drafted tokens for as long as they are what the model itself takes, which ``own`` says
    of the place before the draft and of each one in it."""
    drafted = zip(proposal.above, proposal.tokens, strict=True)
    places = {pair: place for place, pair in enumerate(drafted)}
    at, kept = -1, list[int]()
    while (at, own[at + 1]) in places:
        at = places[at, own[at + 1]]
        kept.append(at)
    return Verdict(kept, own[at + 1])


def _weigh(run: Run, p: Tensor, drafted: Sequence[int], q: Tensor) -> Verdict:
    """Keep a token with probability min(1, p/q); replace the first lost one from the residual."""
    draws = torch.rand(len(drafted), generator=run.generator, device=p.device)
    # Draws are from [0, 1): one of 0 must not keep a token that the processors have cut.
    places = range(len(drafted))
    holds = draws < _of(drafted, p, places) / _of(drafted, q, places)
    accepted = [*holds.tolist(), False].index(False)
    left, residual = p[accepted], None
    if accepted < len(drafted):
        rest = (left - q[accepted]).clamp(min=0)
        total = rest.sum()
        # Where p and q differ by rounding alone nothing is left over, and p itself is right.
        left = residual = rest / total if total > 0 else left
    token = int(run.draw(left))
    return Verdict(range(accepted), token, draws.tolist(), residual)


def _closing(proposal: Proposal, verdict: Verdict) -> str:
    """What the model's own token at the end of a round is: beyond a draft, or in its place."""
    if not proposal.tokens:
        return "chosen"
    last = verdict.kept[-1] if verdict.kept else -1
    return "resampled" if last in proposal.above else "bonus"


def _told(
    nodes: Sequence[Node],
    proposal: Proposal,
    verdict: Verdict,
    p: Sequence[float],
    number: int,
    ended: int | None,
) -> list[Pick]:
    """Every drafted token with what became of it, and the probability the model gives it.

    Rejected is what stood where the model took another token. What stands behind a rejected token,
    or behind the end of the text, is ignored: nobody judged it. A tree has many such tokens, and
    little is told of them.
    """
    if not proposal.tokens:
        return []
    kept = verdict.kept if ended is None else verdict.kept[: ended + 1]
    accepted, judged = set(kept), {-1, *(kept if ended is None else kept[:-1])}
    drawn_by = None
    if proposal.q is not None:
        drawn_by = _of(proposal.tokens, proposal.q, range(len(proposal.tokens))).tolist()
    picks = []
    for place, (above, token) in enumerate(zip(proposal.above, proposal.tokens, strict=True)):
        lost = "rejected" if above in judged else "ignored"
        fate = "accepted" if place in accepted else lost
        notes: dict[str, Any] = {"round": number, "verdict": fate, "p": _short(p[place])}
        if drawn_by:
            notes["q"] = _short(drawn_by[place])
        if verdict.draws is not None and fate != "ignored":
            notes["draw"] = round(verdict.draws[place], 6)
        if proposal.notes:
            notes |= proposal.notes[place]
        ignored = fate == "ignored"
        brief = ignored and proposal.parents is not None
        event = "drafted" if ignored else fate
        picks.append(Pick(nodes[above + 1], token, event, notes, brief))
    return picks


def _of(tokens: Sequence[int], probs: Tensor, rows: Sequence[int]) -> Tensor:
    """The probability of each token in its own row, read at once: (tokens,)."""
    row, token = _places(rows, tokens).to(probs.device)
    return probs[row, token]


def _places(rows: Sequence[int], tokens: Sequence[int]) -> Tensor:
    return torch.tensor([[*rows], [*tokens]], dtype=torch.long)  # there may be none of them


def _short(probability: float) -> float:
    return float(f"{probability:.6g}")
