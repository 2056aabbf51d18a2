"""Speculative decoding with a draft model that has a tokenizer of its own.

Timor et al. 2025, "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for
Heterogeneous Vocabularies": the draft is read as text and spelled in the model's own tokens. There
is no q for those, so they are judged by what the model itself takes or draws.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from engine.run import Node, Run
from engine.settings import setting
from engine.strategy import Ask, Decoding, strategy
from strategies._drafting import Drafting, Pace, reach
from strategies._speculation import Drafter, Proposal, speculate


@dataclass(frozen=True)
class Params(Drafting):
    """Who drafts, and how."""

    assistant_model: str = setting(
        "stories15m", "The draft model: an embedded one, a folder or a Hub id."
    )


@strategy(
    "universal_speculative", order=12, params=Params, drafts=True, decoder_only=True, num_beams=1
)
def universal_speculative(run: Run, params: Params) -> Decoding:
    """Lets a small model of any vocabulary write ahead and keeps what the large one agrees with.

    The draft goes over as text and is cut into the large model's own tokens.
    """
    pace = Pace(params)
    draft = by_respelling(run, params, pace)
    return speculate(run, draft, do_sample=params.do_sample, heard=pace.heard)


def by_respelling(run: Run, params: Drafting, pace: Pace) -> Drafter:
    """Draft the most probable tokens of another vocabulary, and spell them in the model's own."""

    def draft(
        written: list[int], room: int, number: int, last: Node
    ) -> Generator[Sequence[Ask], list[Node], Proposal]:
        text = [*run.root.ids.tolist(), *written]
        read = run.draft.respelling.to_draft(text)
        count = min(pace.tokens, run.draft.room(read))
        if min(count, room) <= 0:
            return Proposal()
        node = yield from reach(run, read)
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
        tokens = run.draft.respelling.to_target(text, read, new)[:room]
        return Proposal(tokens)

    return draft
