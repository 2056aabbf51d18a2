"""Scoring: the scores that a strategy's settings give to the tokens of an existing text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from engine.run import Run
from engine.strategy import Decoding
from engine.trace import Stop
from engine.trie.node import Continuation, Node

TOKENS_PER_PASS = 128  # each keeps a row of the vocabulary in memory

# A strategy's own change of the logits at a node before the processors, and its name.
Adjust = Callable[[Run, Node], tuple[str, Tensor]]


def scoring(
    tokens: Sequence[int], *, log_probs: bool = False, adjust: Adjust | None = None
) -> Callable[[Run], Decoding]:
    """A decoding that takes the given tokens one after the other and records their scores.

    With ``log_probs`` the processors get log-probabilities, as in beam search.
    """

    def decode(run: Run) -> Decoding:
        node = run.root
        for start in range(0, len(tokens), TOKENS_PER_PASS):
            part = list(tokens[start : start + TOKENS_PER_PASS])
            # Nothing is predicted after the last token of the text.
            read = part if start + TOKENS_PER_PASS < len(tokens) else part[:-1]
            rest: list[Continuation] = [(node, *read[:end]) for end in range(1, len(read) + 1)]
            nodes = [node, *((yield rest) if rest else [])]
            for before, token in zip(nodes, part, strict=False):
                # One by one: some processors keep state from one token to the next.
                stage = adjust(run, before) if adjust else None
                run.scores([before], log_probs=log_probs, stage=stage)
                step = run.choose(before, token, "given")
            run.show([step])
            node = nodes[-1]
        stop = Stop("scored", f"{len(tokens)} tokens")
        run.finish([(step, None, stop)], stop)

    return decode
