"""Scoring: what a strategy's settings make of a text that is there already.

Knows how to have a whole text read in few passes and how to tell of it token by token. Refuses to
choose anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from engine.run import Run
from engine.strategy import Decoding
from engine.trace import Stop
from engine.trie.node import Ask, Node

TOGETHER = 128  # tokens read in one pass: a vocabulary row is held for each of them

# What a strategy itself makes of the logits at a node before the processors, and its name.
Reshape = Callable[[Run, Node], tuple[str, Tensor]]


def scoring(
    tokens: Sequence[int], *, log_probs: bool = False, reshape: Reshape | None = None
) -> Callable[[Run], Decoding]:
    """A decoding that takes the given tokens, one after the other, and tells what each was worth.

    ``log_probs``: the processors get log-probabilities, as beam searches give them.
    """

    def decode(run: Run) -> Decoding:
        node = run.root
        for start in range(0, len(tokens), TOGETHER):
            part = list(tokens[start : start + TOGETHER])
            # What the model would say after the last token of the text is not asked for.
            read = part if start + TOGETHER < len(tokens) else part[:-1]
            asks: list[Ask] = [(node, *read[:end]) for end in range(1, len(read) + 1)]
            nodes = [node, *((yield asks) if asks else [])]
            for before, token in zip(nodes, part, strict=False):
                # One by one: some processors remember the text that they are led along.
                reshaped = reshape(run, before) if reshape else None
                run.scores([before], log_probs=log_probs, reshaped=reshaped)
                step = run.choose(before, token, "given")
            run.show([step])
            node = nodes[-1]
        stop = Stop("scored", f"{len(tokens)} tokens")
        run.finish([(step, None, stop)], stop)

    return decode
