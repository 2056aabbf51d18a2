"""How a model drafts: how far ahead, when it stops, and the settings that say so."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import torch

from engine.run import Node, Run
from engine.settings import setting
from engine.strategy import Ask
from strategies._speculation import Drafter, Proposal
from strategies.sample import Shaping


@dataclass(frozen=True)
class Drafting(Shaping):
    """What every strategy is told that has a model draft for it."""

    do_sample: bool = setting(
        False,
        "Draw tokens, as probable as the model thinks they are, instead of the most probable.",
    )
    num_assistant_tokens: int = setting(
        None, "How many tokens to draft in a round.", kind=int, low=1, limit="draft_tokens"
    )
    num_assistant_tokens_schedule: str = setting(
        None,
        "constant, or heuristic: two more after a round in which all were kept, else one less.",
        kind=str,
        choices=("constant", "heuristic", "heuristic_transient"),
    )
    assistant_confidence_threshold: float = setting(
        None,
        "End a draft with a token that the draft model finds less probable than this.",
        low=0.0,
        high=1.0,
    )


class Pace:
    """How many tokens the next round drafts."""

    def __init__(self, params: Drafting) -> None:
        self.tokens = params.num_assistant_tokens
        self._adapts = params.num_assistant_tokens_schedule != "constant"

    def heard(self, all_kept: bool) -> None:
        """Draft more where everything was kept, less where not."""
        if self._adapts:
            self.tokens = self.tokens + 2 if all_kept else max(1, self.tokens - 1)


def by_model(run: Run, params: Drafting, pace: Pace) -> Drafter:
    """Draft with a model of the same vocabulary; its scores go through the same processors."""

    def draft(
        written: list[int], room: int, number: int, last: Node
    ) -> Generator[Sequence[Ask], list[Node], Proposal]:
        text = [*run.draft.start, *written]
        count = min(pace.tokens, room, run.draft.room(text))
        if count <= 0:
            return Proposal()
        node = yield from reach(run, text)
        nodes, tokens, q = [node], [], []
        while True:
            scores = run.scores([node])[0]  # (vocab,)
            probs = scores.softmax(-1)
            token = int(run.draw(probs)) if params.do_sample else int(scores.argmax())
            sure = float(probs[token])
            step = run.choose(node, token, "drafted", round=number, q=float(f"{sure:.6g}"))
            run.show([step])
            tokens.append(token)
            q.append(probs)
            [stop] = run.stops([node], [token])
            if stop or len(tokens) == count or sure < params.assistant_confidence_threshold:
                run.draft.hold(nodes)
                return Proposal(tokens, torch.stack(q))
            [node] = yield [(node, token)]
            nodes.append(node)

    return draft


def reach(run: Run, text: list[int]) -> Generator[Sequence[Ask], list[Node], Node]:
    """Have the draft model read what it has not read of a text yet; gives the text's end."""
    ask = run.draft.ask(text)
    if len(ask) == 1:
        return ask[0]
    [node] = yield [ask]
    return node
