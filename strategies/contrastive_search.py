"""Contrastive search.

Su et al. 2022, "A Contrastive Framework for Neural Text Generation".
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.interop.custom_generate import custom_generate
from engine.run import Pick, Run
from engine.settings import setting
from engine.strategy import Decoding, strategy

RECORDED = (
    256  # generated tokens, the last ones, to which the chosen token's similarity is recorded
)


@dataclass(frozen=True)
class Params:
    """The number of candidates, and the weight of the degeneration penalty."""

    penalty_alpha: float = setting(
        0.6,
        "The weight of the degeneration penalty, the similarity to the text so far: 0 is greedy "
        "decoding.",
        low=0.0,
        high=1.0,
    )
    top_k: int = setting(
        4, "The number of most probable tokens to choose from.", low=1, limit="rows"
    )


@strategy("contrastive_search", order=7, params=Params, do_sample=False, num_beams=1)
def contrastive_search(run: Run, params: Params) -> Decoding:
    """Chooses tokens that are probable but unlike the text so far.

    Evaluates each of the top_k candidates and lowers its score by the similarity of its hidden
    state to that of the most similar earlier token. Keeps long texts from repeating themselves.
    """
    node, alpha = run.root, params.penalty_alpha
    while True:
        # V(k), the k most probable tokens v, and p(v | x<t)
        [tokens], [probs], _ = yield from run.best([node], params.top_k)
        children = yield [(node, token) for token in tokens]

        # x_t = argmax over v in V(k) of (1 - α) p(v | x<t) - α max over j < t of s(h_v, h_j)
        similarity = yield from run.similarity(children, node)  # (candidates, length)
        penalty, nearest = similarity.max(-1)  # (candidates,)
        scores = (1 - alpha) * probs - alpha * penalty
        best = int(scores.argmax())

        columns = (column.tolist() for column in (probs, penalty, nearest, scores))
        picks = [
            Pick(node, token, "chosen" if index == best else "pruned", _notes(*numbers))
            for index, (token, *numbers) in enumerate(zip(tokens, *columns, strict=True))
        ]
        picks[best] = _with_similarities(picks[best], similarity[best], len(run.root.text))
        step = run.record(picks)[best]
        run.show([step])
        [stop] = run.stops([node], [tokens[best]])
        if stop:
            return run.finish([(step, None, stop)], stop)
        node = children[best]


generate = custom_generate(contrastive_search)


def _notes(probability: float, penalty: float, nearest: float, score: float) -> dict[str, float]:
    return {
        "probability": round(probability, 6),
        "similarity": round(penalty, 6),
        "similar_to": int(nearest),
        "score": round(score, 6),
    }


def _with_similarities(pick: Pick, similarity: Tensor, prompt: int) -> Pick:
    """The chosen token with its similarity to each token generated before it. ``since`` is the
    position of the first of these: like ``similar_to``, it counts from the start of the prompt."""
    since = max(prompt, len(similarity) - RECORDED)
    similarities = similarity[since:].double().round(decimals=3).tolist()
    return pick._replace(notes={**pick.notes, "similarities": similarities, "since": since})
