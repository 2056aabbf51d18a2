"""Where a way of decoding weakens a mark, and why: one sentence for each.

Knows what transformers' processors do and when a strategy asks them. Refuses to measure.
"""

from __future__ import annotations

_SAMPLE = (
    "Drawing is what both schemes are made for: the mark is weak only where the model is sure, and "
    "where a low temperature, top-k or top-p leaves few tokens for the bias to choose between."
)
_GREEDY = (
    "Greedy decoding changes its mind only where a green token lies within the bias of the best: "
    "where the model is sure nothing changes, and a text that goes in circles repeats its n-grams, "
    "which are evidence only once."
)
_BEAMS = (
    "Beams add the bias to the scores they compare, so the search itself looks for green texts. "
    "But such texts repeat themselves, and repeated n-grams are evidence only once: far fewer "
    "tokens count."
)
_DRAFTS = (
    "Drafts do not weaken the mark: what is kept is what the marked model would have written. It "
    "may cost speed instead, as drafts that miss a green token are rejected."
)

GREEN = {
    "sample": _SAMPLE,
    "greedy": _GREEDY,
    "beam_search": _BEAMS,
    "beam_sample": _BEAMS,
    "diverse_beam_search": _BEAMS
    + " Groups also avoid each other's tokens, whatever colour these have.",
    "constrained_beam_search": _BEAMS
    + " A word that must appear is written whatever colour it has.",
    "contrastive_search": (
        "The bias makes green tokens more probable among the few candidates, but likeness to the "
        "text so far has its say after that and may turn a green token down."
    ),
    "dola": (
        "DoLa cuts all but the tokens the last layer finds likely before the bias is added: often "
        "few are left, and none of them green."
    ),
    "speculative": _DRAFTS,
    "universal_speculative": _DRAFTS,
    "early_exit": _DRAFTS,
    "medusa": _DRAFTS,
    "prompt_lookup": (
        "Copied words are kept only where the marked model takes them too, so the mark is as "
        "strong as without copies; but what is copied often repeats an n-gram, which is evidence "
        "only once."
    ),
    "custom": "This decoding is somebody's own: what it does with the bias is not known here.",
}
_ROWS = (
    "SynthID's processor remembers the last tokens of each row, and beams change rows: it may have "
    "hashed another beam's context, and such a token carries no mark that can be found."
)
_REMEMBERS = (
    "SynthID's processor remembers every token it saw, also of drafts that are thrown away: it is "
    "not offered with drafts."
)
SYNTHID = {
    "sample": (
        "SynthID's tournament is made for drawing: it says little where the model is sure, and "
        "where a low temperature, top-k or top-p leaves few tokens to compete."
    ),
    "greedy": (
        "SynthID is made for draws. Greedy decoding always takes the winner of the changed scores: "
        "the mark may be strong, but words do become likelier by it, and repeated contexts are "
        "left unmarked."
    ),
    "beam_search": _ROWS,
    "beam_sample": _ROWS,
    "diverse_beam_search": _ROWS,
    "constrained_beam_search": _ROWS,
    "contrastive_search": (
        "SynthID is made for draws. Contrastive search weighs a few candidates against likeness "
        "instead, so the tournament only shifts who is weighed."
    ),
    "dola": (
        "SynthID is made for draws. DoLa takes the best of the few tokens it has not cut, so the "
        "mark shows only where the tournament tips their order."
    ),
    "speculative": _REMEMBERS,
    "universal_speculative": _REMEMBERS,
    "early_exit": _REMEMBERS,
    "medusa": _REMEMBERS,
    "prompt_lookup": _REMEMBERS,
    "custom": "This decoding is somebody's own: what it does with the mark is not known here.",
}
_UNKNOWN = "What this strategy does to a mark is not known here."


def watermark_effect(strategy: str, scheme: str) -> str:
    """What a strategy does to a mark of this scheme."""
    return (SYNTHID if scheme == "synthid" else GREEN).get(strategy, _UNKNOWN)
