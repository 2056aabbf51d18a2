"""Contrastive search.

Su et al. 2022, "A Contrastive Framework for Neural Text Generation":
score(v) = (1 - alpha) * p(v) - alpha * max over earlier tokens of cosine(h(v), h(earlier)).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.in_transformers import custom_generate
from engine.run import Node, Pick, Run
from engine.settings import setting
from engine.strategy import Decoding, strategy

REMEMBERED = 256  # written tokens that the chosen one's likeness is told to: the last ones


@dataclass(frozen=True)
class Params:
    """How many candidates, and how much likeness to the text so far counts against them."""

    penalty_alpha: float = setting(
        0.6,
        "How much likeness to the text so far counts against a token: 0 is greedy decoding.",
        low=0.0,
        high=1.0,
    )
    top_k: int = setting(4, "How many of the most probable tokens to weigh.", low=1, limit="rows")


@strategy("contrastive_search", order=7, params=Params, do_sample=False, num_beams=1)
def contrastive_search(run: Run, params: Params) -> Decoding:
    """Prefers tokens that are probable but unlike what was already said.

    Looks one token ahead: every candidate is read by the model, and the more its hidden state
    resembles that of an earlier token, the more it loses. Keeps long texts from going in circles.
    """
    node = run.root
    context = _unit(run.states(node))  # (length, width)
    while True:
        probs, tokens = run.scores([node])[0].softmax(-1).topk(params.top_k)
        candidates = tokens.tolist()
        children = yield [(node, token) for token in candidates]

        # The degeneration penalty is the likeness to the most similar earlier token.
        ahead = _unit(run.hidden(children))  # (candidates, width)
        likeness = ahead @ context.T  # (candidates, length)
        similarity, earlier = likeness.max(-1)
        scores = (1 - params.penalty_alpha) * probs - params.penalty_alpha * similarity
        numbers, likeness = _on_host(likeness, probs, similarity, earlier, scores)
        best = int(numbers[:, 3].argmax())

        picks = _picks(node, candidates, best, numbers)
        picks[best] = _telling(picks[best], likeness[best], len(run.root.ids))
        step = run.record(picks)[best]
        run.show([step])
        [stop] = run.stops([node], [candidates[best]])
        if stop:
            return run.finish([(step, None, stop)], stop)
        context = torch.cat([context, ahead[best : best + 1]])
        node = children[best]


generate = custom_generate(contrastive_search)


def _unit(states: Tensor) -> Tensor:
    return torch.nn.functional.normalize(states, dim=-1)


def _on_host(likeness: Tensor, *numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers of each candidate, (candidates, numbers), and its likeness to the text, asked
    of the device in one go: float64 holds all of them as they are."""
    columns = torch.stack([of_all.double() for of_all in numbers], dim=1)
    told = torch.cat([columns, likeness.double()], dim=1).cpu()
    return told[:, : len(numbers)], told[:, len(numbers) :]


def _telling(pick: Pick, likeness: Tensor, start: int) -> Pick:
    """The pick with its likeness to the tokens written before it, and which is the first of those:
    like ``similar_to``, ``since`` counts from the beginning of what the model reads."""
    since = max(start, len(likeness) - REMEMBERED)
    similarities = [round(value, 3) for value in likeness[since:].tolist()]
    return replace(pick, notes={**pick.notes, "similarities": similarities, "since": since})


def _picks(node: Node, candidates: list[int], best: int, numbers: Tensor) -> list[Pick]:
    """All candidates, each with the numbers that decided."""
    picks = []
    for place, (token, row) in enumerate(zip(candidates, numbers.tolist(), strict=True)):
        probability, similarity, earlier, score = row
        notes = {
            "probability": round(probability, 6),
            "similarity": round(similarity, 6),
            "similar_to": int(earlier),
            "score": round(score, 6),
        }
        picks.append(Pick(node, token, "chosen" if place == best else "pruned", notes))
    return picks
