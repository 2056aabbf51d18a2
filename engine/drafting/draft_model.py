"""A draft model as a strategy sees it: ask it about texts, in its own tokens.

Knows what it has read and whether its tokens are the target's. Refuses to know who drafts and why.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from engine.drafting.cross_tokenizer import CrossTokenizer
from engine.trie.node import Ask, Node, Source, Text


class Draft:
    """The draft model of one run, its prompt evaluated."""

    def __init__(self, source: Source, target: Source) -> None:
        root = source.root
        top = source.evaluator.backend.top(source.prompt.context)
        self.start = list(source.prompt.start)  # what its texts begin with
        self.respelling = CrossTokenizer(target.model.tokenizer, source.model.tokenizer)
        self._model = source.model
        # Nothing was said at the top, but texts can go on from there.
        self._fixed = [Node(root.evaluator, top, root.place, Text()), root]
        self._held: list[Node] = []

    def ask(self, text: Sequence[int]) -> Ask:
        """What to ask for to stand at the end of a text: no more than was not read yet."""
        known = (node for node in (*self._fixed, *self._held) if _begins(text, node))
        last = max(known, key=lambda node: len(node.text))
        return (last, *text[len(last.text) :])

    def hold(self, nodes: Sequence[Node]) -> None:
        """Keep what was read last: the next text begins with a part of it."""
        self._held = list(nodes)

    def room(self, text: Sequence[int]) -> int:
        """How many more tokens the draft model can attend to: none behind a token it has not."""
        known = self._model.module.config.get_text_config(decoder=True).vocab_size
        if max(text, default=0) >= known:  # one of those that only pad the target's vocabulary
            return 0
        return (self._model.context_length or sys.maxsize) - len(text)

    def ends(self, token: int) -> bool:
        """Whether the draft model would end its text with a token."""
        ends = self._model.module.generation_config.eos_token_id
        return token in (ends if isinstance(ends, list) else [ends])


def _begins(text: Sequence[int], node: Node) -> bool:
    return tuple(node.text) == tuple(text[: len(node.text)])
