"""How a decoding strategy affects a watermark: one sentence for each strategy and scheme.

A strategy without a text of its own gets the text of its kind: it drafts, it keeps beams, it runs
user code, or nothing is known about it.
"""

from __future__ import annotations

import strategies

_BEAMS = (
    "Beam search adds the bias to the scores it compares, so it searches for green texts. Such "
    "texts repeat themselves, and repeated n-grams count only once: far fewer tokens are scored."
)
_SYNTHID_BEAMS = (
    "SynthID's processor keeps the last tokens of each row, and beams change rows: it may hash "
    "another beam's context, and the detector finds no mark in such a token."
)
_GREEN_LIST = {
    "sample": (
        "Sampling suits both schemes. The mark is weak only where the model's entropy is low, or "
        "where a low temperature, top-k or top-p leaves few tokens to choose from."
    ),
    "greedy": (
        "Greedy decoding changes a token only if a green one is within the bias of the best. Where "
        "entropy is low nothing changes, and in repetitive texts the repeated n-grams count only "
        "once."
    ),
    "diverse_beam_search": f"{_BEAMS} Groups also avoid each other's tokens, green or not.",
    "constrained_beam_search": f"{_BEAMS} A required word is written whether it is green or not.",
    "contrastive_search": (
        "The bias raises green tokens among the few candidates, but the similarity penalty is "
        "applied after it and may reject a green token."
    ),
    "dola": (
        "DoLa keeps only tokens that the last layer finds likely before the bias is added: often "
        "few are left, and none of them green."
    ),
    "prompt_lookup": (
        "Copied tokens are accepted only if the marked model agrees, so the mark is as strong as "
        "without drafts. But copies often repeat an n-gram, which counts only once."
    ),
}
_SYNTHID = {
    "sample": (
        "SynthID's tournament is designed for sampling. The mark is weak where the model's entropy "
        "is low, or where a low temperature, top-k or top-p leaves few tokens to compete."
    ),
    "greedy": (
        "SynthID is designed for sampling. Greedy decoding always takes the winner of the changed "
        "scores: the mark may be strong, but it changes which words are likely, and repeated "
        "contexts stay unmarked."
    ),
    "contrastive_search": (
        "SynthID is designed for sampling. Contrastive search ranks a few candidates by similarity "
        "as well, so the tournament only changes which tokens are candidates."
    ),
    "dola": (
        "SynthID is designed for sampling. DoLa takes the best of the few tokens it keeps, so the "
        "mark shows only where the tournament changes their order."
    ),
}
# By the kind of strategy: (green list, SynthID).
_DRAFTS = (
    "Drafts do not weaken the mark: accepted tokens are those the marked model would choose. They "
    "may cost speed, since drafts that miss a green token are rejected.",
    "SynthID's processor keeps every token it has seen, rejected drafts included: it cannot be "
    "used with drafts.",
)
_FOREIGN = ("The effect is not known: this strategy runs your own code.",) * 2
_UNKNOWN = ("The effect of this strategy on a watermark is not known.",) * 2


def watermark_effect(strategy: str, scheme: str) -> str:
    """How a strategy affects a watermark of this scheme."""
    synthid = scheme == "synthid"
    own = (_SYNTHID if synthid else _GREEN_LIST).get(strategy)
    return own or _of_kind(strategy)[synthid]


def _of_kind(strategy: str) -> tuple[str, ...]:
    found = strategies.registered().get(strategy)
    if found is None:
        return _UNKNOWN
    if found.runs_user_code:
        return _FOREIGN
    if found.drafts:
        return _DRAFTS
    return (_BEAMS, _SYNTHID_BEAMS) if "num_beams" in found.own_settings else _UNKNOWN
