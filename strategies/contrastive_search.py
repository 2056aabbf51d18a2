"""Contrastive search.

Su et al. 2022, "A Contrastive Framework for Neural Text Generation":
score(v) = (1 - alpha) * p(v) - alpha * max over earlier tokens of cosine(h(v), h(earlier)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.accel.graphs import bucket
from engine.interop.custom_generate import custom_generate
from engine.run import Node, Pick, Run
from engine.settings import setting
from engine.strategy import Decoding, strategy
from engine.trie.backend import highest

NUMBERS = 4  # of each candidate, the last of which decides
ROOM = 512  # tokens that a GPU has room for at first
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
    context = _Context(run.states(node))
    while True:
        if found := (yield from run.best([node], params.top_k)):
            candidates = found.tokens[0][: params.top_k]
            probs = torch.tensor(found.log_probs[0][: params.top_k]).exp()
        else:
            told = yield from run.ask(_most_probable, run.scores([node]), count=params.top_k)
            candidates, probs = told[0].long().tolist(), told[1]
        children = yield [(node, token) for token in candidates]

        ahead = run.features(children, [-1])[:, 0]  # (candidates, width)
        # What the host knows goes to the device in one piece.
        known = torch.tensor([context.length, *probs.tolist()], dtype=torch.double)
        weighing = ahead, context.visible, known
        numbers = yield from run.ask(_weighed, *weighing, alpha=params.penalty_alpha)
        columns = numbers[:, :NUMBERS].tolist()
        scores = [score for *_, score in columns]
        best = scores.index(max(scores))

        picks = _picks(node, candidates, best, columns)
        likeness = numbers[best, NUMBERS : NUMBERS + context.length]
        picks[best] = _telling(picks[best], likeness, len(run.root.text))
        step = run.record(picks)[best]
        run.show([step])
        [stop] = run.stops([node], [candidates[best]])
        if stop:
            return run.finish([(step, None, stop)], stop)
        context.add(ahead[best])
        node = children[best]


generate = custom_generate(contrastive_search)


class _Context:
    """The last hidden state at every token of a text that grows, with room for more."""

    def __init__(self, states: Tensor) -> None:
        self.length = len(states)
        self._states = states

    @property
    def visible(self) -> Tensor:
        """The states, (length, width); for a GPU with some room behind, so that shapes repeat."""
        room = self.length
        if self._states.device.type == "cuda":
            room = bucket(room, ROOM)
        self._make(room)
        return self._states[:room]

    def add(self, state: Tensor) -> None:
        """One more."""
        if self.length == len(self._states):
            self._make(bucket(self.length + 1, ROOM))
        self._states[self.length] = state
        self.length += 1

    def _make(self, room: int) -> None:
        if room > len(self._states):
            more = room - len(self._states)
            self._states = torch.cat(
                [self._states, self._states.new_zeros(more, *self._states.shape[1:])]
            )


def _most_probable(scores: Tensor, count: int) -> Tensor:
    """The most probable tokens of one row of scores and their probabilities, (2, count)."""
    probs = scores.softmax(-1)
    tokens = highest(probs, count)
    return torch.cat([tokens, probs.gather(-1, tokens)]).double()


def _weighed(ahead: Tensor, context: Tensor, known: Tensor, alpha: float) -> Tensor:
    """The numbers of each candidate, then its likeness to every earlier token: float64 holds all of
    them as they are. Known are the length of the context and the candidates' probabilities."""
    length, probs = known.to(ahead.device).float().tensor_split([1])
    # The degeneration penalty is the likeness to the most similar earlier token.
    likeness = _unit(ahead) @ _unit(context).T  # (candidates, length)
    beyond = torch.arange(len(context), device=ahead.device) >= length
    similarity, earlier = likeness.masked_fill(beyond, -torch.inf).max(-1)
    scores = (1 - alpha) * probs - alpha * similarity
    columns = torch.stack([each.double() for each in (probs, similarity, earlier, scores)], dim=1)
    return torch.cat([columns, likeness.double()], dim=1)


def _unit(states: Tensor) -> Tensor:
    return torch.nn.functional.normalize(states, dim=-1)


def _telling(pick: Pick, likeness: Tensor, start: int) -> Pick:
    """The pick with its likeness to the tokens written before it, and which is the first of those:
    like ``similar_to``, ``since`` counts from the beginning of what the model reads."""
    since = max(start, len(likeness) - REMEMBERED)
    similarities = likeness[since:].round(decimals=3).tolist()
    return pick._replace(notes={**pick.notes, "similarities": similarities, "since": since})


def _picks(
    node: Node, candidates: list[int], best: int, numbers: Sequence[Sequence[float]]
) -> list[Pick]:
    """All candidates, each with the numbers that decided."""
    picks = []
    for place, (token, row) in enumerate(zip(candidates, numbers, strict=True)):
        probability, similarity, earlier, score = row
        notes = {
            "probability": round(probability, 6),
            "similarity": round(similarity, 6),
            "similar_to": int(earlier),
            "score": round(score, 6),
        }
        picks.append(Pick(node, token, "chosen" if place == best else "pruned", notes))
    return picks
