"""A draft model as a strategy sees it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from engine.drafting.cross_tokenizer import CrossTokenizer
from engine.trie.node import Continuation, Node, Source, Text


class DraftModel:
    """The draft model of one run; texts are in its own tokens."""

    def __init__(self, source: Source, target: Source) -> None:
        root = source.root
        top = source.evaluator.backend.top(source.prompt.context)
        self.start = list(source.prompt.start)  # the tokens of the prompt
        self.cross_tokenizer = CrossTokenizer(target.model.tokenizer, source.model.tokenizer)
        self._model = source.model
        # The top of the trie has no output of its own, but texts can continue it.
        self._fixed = [Node(root.evaluator, top, root.output_row, Text()), root]
        self._held: list[Node] = []

    def continuation(self, text: Sequence[int]) -> Continuation:
        """What to evaluate to get to the end of a text: the tokens not evaluated yet."""
        known = (node for node in (*self._fixed, *self._held) if _is_prefix(node, text))
        last = max(known, key=lambda node: len(node.text))
        return (last, *text[len(last.text) :])

    def hold(self, nodes: Sequence[Node]) -> None:
        """Keep the nodes evaluated last: the next text starts with a part of them."""
        self._held = list(nodes)

    def room(self, text: Sequence[int]) -> int:
        """How many more tokens the draft model can draft: none after a token it does not have."""
        vocabulary = self._model.module.config.get_text_config(decoder=True).vocab_size
        if max(text, default=0) >= vocabulary:  # a token that pads the target's vocabulary
            return 0
        return (self._model.context_length or sys.maxsize) - len(text)

    def ends(self, token: int) -> bool:
        """Whether a token ends the draft model's texts."""
        ends = self._model.module.generation_config.eos_token_id
        return token in (ends if isinstance(ends, list) else [ends])


def _is_prefix(node: Node, text: Sequence[int]) -> bool:
    return tuple(node.text) == tuple(text[: len(node.text)])
