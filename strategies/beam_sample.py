"""Beam search whose candidates are drawn instead of ranked."""

from __future__ import annotations

from dataclasses import dataclass

from engine.run import Run, Subroutine
from engine.strategy import Decoding, strategy
from strategies._beams import BeamParams, Beams, Candidates
from strategies.beam_search import search
from strategies.sample import SamplingParams


@dataclass(frozen=True)
class Params(SamplingParams, BeamParams):
    """The settings of beam search and of sampling."""


@strategy("beam_sample", order=4, params=Params, do_sample=True)
def beam_sample(run: Run, params: Params) -> Decoding:
    """Beam search that samples the continuations of its beams instead of ranking them.

    More varied than beam search, more coherent than sampling. Equal seeds give equal texts.
    """
    return search(run, params, drawn_candidates)


def drawn_candidates(run: Run, beams: Beams) -> Subroutine[Candidates]:
    """Continuations drawn in proportion to the probabilities of the whole texts."""
    scores = run.scores(beams.nodes, log_probs=True)  # (beams, vocab)
    totals = scores + beams.totals[:, None].to(scores)
    probs = totals.flatten().softmax(-1)  # (beams * vocab,)
    drawn = run.draw(probs[None], beams.num_candidates, at=beams.nodes)[0].tolist()
    places = [divmod(index, scores.shape[-1]) for index in drawn]
    rows, tokens = [beam for beam, _ in places], [token for _, token in places]
    return beams.candidates(rows, tokens, scores[rows, tokens].tolist())
    yield  # a subroutine, though this one evaluates nothing
