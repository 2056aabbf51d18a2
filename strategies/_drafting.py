"""Drafts, and how a draft model makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.run import Node, Run, Subroutine
from engine.settings import setting
from strategies.sample import SamplingParams

DO_SAMPLE = "Sample from the model's distribution instead of taking the most probable token."


@dataclass(frozen=True, eq=False)
class Draft:
    """Drafted tokens: a chain, or a tree that the parents of the tokens describe."""

    tokens: Sequence[int] = ()
    q: Tensor | None = None  # (drafted, vocab) the distributions a chain was drawn from, if it was
    notes: Sequence[Mapping[str, Any]] = ()  # for the record of each token
    tree: Sequence[int] | None = None  # the index of each token's parent; -1 before the first ones

    @property
    def parents(self) -> Sequence[int]:
        """The index of each token's parent: a chain is a tree without branches."""
        return range(-1, len(self.tokens) - 1) if self.tree is None else self.tree

    def continuations(
        self, node: Node, pending: Sequence[int]
    ) -> list[tuple[Node, *tuple[int, ...]]]:
        """What to evaluate after a node: the pending token, and every drafted one after it."""
        paths = {-1: tuple(pending)}
        for index, (parent, token) in enumerate(zip(self.parents, self.tokens, strict=True)):
            paths[index] = (*paths[parent], token)
        return [(node, *path) for path in paths.values() if path]


# Drafts after the tokens generated so far, at most ``room`` tokens ahead, in the round of this
# number; ``node`` is the last one evaluated, where the model took the last token.
Drafter = Callable[[list[int], int, int, Node], Subroutine[Draft]]


@dataclass(frozen=True)
class DraftingParams(SamplingParams):
    """The settings of every strategy with a draft model."""

    do_sample: bool = setting(False, DO_SAMPLE)
    num_assistant_tokens: int = setting(
        None, "The number of tokens to draft in a round.", kind=int, low=1, limit="draft_tokens"
    )
    num_assistant_tokens_schedule: str = setting(
        None,
        "constant, or heuristic: two more after a round in which all were accepted, else one less.",
        kind=str,
        choices=("constant", "heuristic", "heuristic_transient"),
    )
    assistant_confidence_threshold: float = setting(
        None,
        "End a draft after a token that the draft model gives a probability below this.",
        low=0.0,
        high=1.0,
    )


class DraftLength:
    """How many tokens to draft in the next round."""

    def __init__(self, params: DraftingParams) -> None:
        self.tokens = params.num_assistant_tokens
        self._adaptive = params.num_assistant_tokens_schedule != "constant"

    def update(self, all_accepted: bool) -> None:
        """Draft more after a round in which all tokens were accepted, fewer after another one."""
        if self._adaptive:
            self.tokens = self.tokens + 2 if all_accepted else max(1, self.tokens - 1)


def draft_with_model(run: Run, params: DraftingParams, length: DraftLength) -> Drafter:
    """Draft with a model of the same vocabulary; its scores go through the same processors."""

    def draft(generated: list[int], room: int, number: int, node: Node) -> Subroutine[Draft]:
        text = [*run.draft.start, *generated]
        count = min(length.tokens, room, run.draft.room(text))
        if count <= 0:
            return Draft()
        node = yield from _evaluated(run, text)
        nodes, tokens, q = [node], [], []
        while True:
            scores = run.scores([node])[0]  # (vocab,)
            probs = scores.softmax(-1)
            token = int(run.draw(probs)) if params.do_sample else int(scores.argmax())
            confidence = float(probs[token])
            step = run.choose(node, token, "drafted", round=number, q=significant(confidence))
            run.show([step])
            tokens.append(token)
            q.append(probs)
            [stop] = run.stops([node], [token])
            unsure = confidence < params.assistant_confidence_threshold
            if stop or unsure or len(tokens) == count:
                run.draft.hold(nodes)
                return Draft(tokens, torch.stack(q))
            [node] = yield [(node, token)]
            nodes.append(node)

    return draft


def draft_across_tokenizers(run: Run, params: DraftingParams, length: DraftLength) -> Drafter:
    """Draft the most probable tokens of a model with another tokenizer, and tokenize their text for
    the target. There is no q for these tokens, so the model accepts those that it takes itself."""

    def draft(generated: list[int], room: int, number: int, node: Node) -> Subroutine[Draft]:
        translate = run.draft.cross_tokenizer
        text = [*run.root.ids.tolist(), *generated]
        read = translate.to_draft(text)
        count = min(length.tokens, run.draft.room(read))
        if min(count, room) <= 0:
            return Draft()
        node = yield from _evaluated(run, read)
        nodes, new = [node], []
        while True:
            probs = run.logits([node])[0].softmax(-1)  # (draft vocab,)
            token = int(probs.argmax())
            if run.draft.ends(token):
                break
            new.append(token)
            if len(new) == count or float(probs[token]) < params.assistant_confidence_threshold:
                break
            [node] = yield [(node, token)]
            nodes.append(node)
        run.draft.hold(nodes)
        return Draft(translate.to_target(text, read, new)[:room])

    return draft


def _evaluated(run: Run, text: list[int]) -> Subroutine[Node]:
    """The node at the end of a text, evaluated by the draft model."""
    continuation = run.draft.continuation(text)
    if len(continuation) == 1:
        return continuation[0]
    node: Node
    [node] = yield [continuation]
    return node


def significant(probability: float) -> float:
    """A probability for the record."""
    return float(f"{probability:.6g}")
