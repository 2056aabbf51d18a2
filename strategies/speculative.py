"""Speculative decoding: a draft model proposes tokens, the model verifies them in one pass.

Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding"; Chen et al.
2023, "Accelerating Large Language Model Decoding with Speculative Sampling".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.run import Node, Pick, Run, Subroutine
from engine.settings import setting
from engine.strategy import Decoding, strategy
from strategies._drafting import (
    Draft,
    Drafter,
    DraftingParams,
    DraftLength,
    draft_across_tokenizers,
    draft_with_model,
    significant,
)


@dataclass(frozen=True)
class Params(DraftingParams):
    """The draft model, and how it drafts."""

    assistant_model: str | None = setting(
        None,
        "The draft model: an embedded one, a folder or a Hub id. By default the draft trained for "
        "the model, if there is one; otherwise, or if it is named itself, the model drafts for "
        "itself, which shows how it works but saves nothing.",
        kind=str,
    )


@strategy("speculative", order=9, params=Params, drafts=True, num_beams=1)
def speculative(run: Run, params: Params) -> Decoding:
    """Drafts tokens with a small model and keeps those that the large model accepts.

    One pass of the large model verifies a whole draft. The text is the one of greedy decoding or,
    with do_sample, follows exactly the distribution of sampling.
    """
    length = DraftLength(params)
    make = draft_across_tokenizers if run.draft.cross_tokenizer.needed else draft_with_model
    draft = make(run, params, length)
    return speculate(run, draft, do_sample=params.do_sample, on_round=length.update)


def speculate(
    run: Run,
    drafter: Drafter,
    *,
    do_sample: bool,
    on_round: Callable[[bool], None] | None = None,
) -> Decoding:
    """Draft, verify, accept, correct, until the text ends; ``on_round`` gets whether all drafted
    tokens were accepted."""
    node, pending = run.root, list[int]()  # the last node evaluated, and the token after it
    generated: list[int] = []
    number = 0
    while True:
        number += 1
        # Draft, and leave room for the token that the model itself adds.
        draft = yield from drafter(generated, run.max_new_tokens - len(generated) - 1, number, node)

        # Verify the pending token and the whole draft in one pass.
        continuations = draft.continuations(node, pending)
        evaluated = (yield continuations) if continuations else []
        nodes = [node, *evaluated][len(pending) :]  # before the draft, and after each of its tokens

        # Accept a prefix of the draft, and correct: take one more token from the model.
        verdict = yield from verify(run, nodes, draft, do_sample)
        accepted = [draft.tokens[index] for index in verdict.accepted]
        if on_round and draft.tokens:
            on_round(len(accepted) == len(draft.tokens))

        path = [nodes[0], *(nodes[index + 1] for index in verdict.accepted)]
        stops = run.stops(path[:-1], accepted)
        end = next((at for at, stop in enumerate(stops) if stop), None)
        picks = record_draft(nodes, draft, verdict, number, end)
        if end is not None and (stop := stops[end]):
            step = run.record(picks)[verdict.accepted[end]]
            run.show([step])
            return run.finish([(step, None, stop)], stop)

        node, pending = path[-1], [verdict.token]
        event = correction(draft, verdict)
        own = Pick(node, verdict.token, event, {"round": number, "verdict": event})
        if verdict.residual is None:
            step = run.record([*picks, own])[-1]
        else:
            run.record(picks)
            run.add_stage(node, "residual", verdict.residual.log())
            [step] = run.record([own])
        run.show([step])
        [stop] = run.stops([node], [verdict.token])
        if stop:
            return run.finish([(step, None, stop)], stop)
        generated += [*accepted, verdict.token]


class Verdict(NamedTuple):
    """The result of verifying a draft."""

    accepted: Sequence[int]  # the indices of the accepted tokens, in order
    token: int  # the model's own token after them
    draws: list[float] | None = None  # the random number for each drafted token
    residual: Tensor | None = None  # (vocab,) what the token was drawn from after a rejection
    p: Sequence[float] = ()  # the model's probability of each drafted token


def verify(run: Run, nodes: Sequence[Node], draft: Draft, do_sample: bool) -> Subroutine[Verdict]:
    """Accept or reject drafted tokens, given the nodes before the draft and after each token."""
    rows = [parent + 1 for parent in draft.parents]
    drafted = list(zip(rows, draft.tokens, strict=True))
    if not do_sample:
        best, _, p_drafted = yield from run.best(nodes, 1, also=drafted)
        verdict = follow([token for [token] in best], draft)
    else:
        p = run.scores(nodes).softmax(-1)  # (1 + drafted, vocab)
        p_drafted = p[rows, list(draft.tokens)].tolist()
        if draft.q is not None:
            verdict = accept(run, draft.tokens, p, draft.q, nodes)
        else:
            verdict = follow(run.draw(p, at=nodes)[:, 0].tolist(), draft)
    return verdict._replace(p=p_drafted)


def accept(run: Run, tokens: Sequence[int], p: Tensor, q: Tensor, nodes: Sequence[Node]) -> Verdict:
    """Speculative sampling: what is accepted follows the model's own distribution p.

    ``p``: (1 + drafted, vocab) of the model after each of the nodes, ``q``: (drafted, vocab) of the
    draft model.
    """
    # Accept x ~ q(x) with probability min(1, p(x) / q(x)); "<", as a draw of 0 must not accept p =
    # 0
    drafted = list(range(len(tokens))), list(tokens)
    ratio = p[drafted] / q[drafted]  # (drafted,)
    draws = torch.empty_like(ratio).uniform_(generator=run.generator)
    accepted = [*(draws < ratio).tolist(), False].index(False)
    left, residual = p[accepted], None
    if accepted < len(tokens):
        # Correct the first rejected token: x ~ norm(max(0, p(x) - q(x)))
        rest = (p[accepted] - q[accepted]).clamp(min=0)
        total = rest.sum()
        # Where p and q differ by rounding only, nothing is left, and p itself is right.
        left = residual = rest / total if total > 0 else p[accepted]
    token = int(run.draw(left, at=[nodes[accepted]]))
    return Verdict(range(accepted), token, draws.tolist(), residual)


def follow(own: Sequence[int], draft: Draft) -> Verdict:
    """Accept drafted tokens, of a chain or a tree, for as long as they are the model's own choice:
    ``own`` before the draft and after each of its tokens.

    A draft only decides how far the choices are known already, never what is chosen. So texts
    follow the model's distribution whatever is drafted.
    """
    drafted = zip(draft.parents, draft.tokens, strict=True)
    indices = {pair: index for index, pair in enumerate(drafted)}
    at, accepted = -1, list[int]()
    while (at, own[at + 1]) in indices:
        at = indices[at, own[at + 1]]
        accepted.append(at)
    return Verdict(accepted, own[at + 1])


def correction(draft: Draft, verdict: Verdict) -> str:
    """The event of the model's own token: after a draft, in place of a rejected token, or alone."""
    if not draft.tokens:
        return "chosen"
    last = verdict.accepted[-1] if verdict.accepted else -1
    return "resampled" if last in draft.parents else "bonus"


def record_draft(
    nodes: Sequence[Node], draft: Draft, verdict: Verdict, number: int, end: int | None
) -> list[Pick]:
    """The record of every drafted token in a round; ``end`` is the accepted one that ends the text.

    A token is rejected where the model took another one in its place. What follows a rejected token
    or the end of the text is ignored. A tree has many such tokens, which are recorded briefly.
    """
    accepted = verdict.accepted if end is None else verdict.accepted[: end + 1]
    decided = {-1, *(accepted if end is None else accepted[:-1])}  # parents of verified tokens
    q = None
    if draft.q is not None:
        q = draft.q[list(range(len(draft.tokens))), list(draft.tokens)].tolist()
    picks = []
    for index, (parent, token) in enumerate(zip(draft.parents, draft.tokens, strict=True)):
        lost = "rejected" if parent in decided else "ignored"
        fate = "accepted" if index in accepted else lost
        ignored = fate == "ignored"
        notes: dict[str, Any] = {
            "round": number,
            "verdict": fate,
            "p": significant(verdict.p[index]),
        }
        if q is not None:
            notes["q"] = significant(q[index])
        if verdict.draws is not None and not ignored:
            notes["draw"] = round(verdict.draws[index], 6)
        if draft.notes:
            notes |= draft.notes[index]
        brief = ignored and draft.tree is not None
        event = "drafted" if ignored else fate
        picks.append(Pick(nodes[parent + 1], token, event, notes, brief))
    return picks
