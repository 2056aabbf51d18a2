"""Beam search.

Graves 2012, "Sequence Transduction with Recurrent Neural Networks". The length penalty is that of
Wu et al. 2016 without its constants: score = sum of log-probabilities / length ** length_penalty.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.interop.custom_generate import custom_generate
from engine.run import Run, Subroutine
from engine.strategy import Decoding, strategy
from strategies._beams import VECTORIZED, BeamParams, Beams, Candidates, ranked

# Chooses the continuations of beams that compete in a step.
Propose = Callable[[Run, Beams], Subroutine[Candidates]]


@strategy("beam_search", order=3, params=BeamParams, do_sample=False)
def beam_search(run: Run, params: BeamParams) -> Decoding:
    """Keeps the num_beams most probable partial texts (beams) at each step.

    Returns the most probable finished text, which is more probable than that of greedy decoding. In
    open-ended generation such texts are often short, dull or repetitive.
    """
    return search(run, params)


generate = custom_generate(beam_search)


def search(run: Run, params: BeamParams, propose: Propose | None = None) -> Decoding:
    """Beam search over the best continuations, or over those of ``propose``."""
    beams = Beams(run, params, run.root, params.num_beams, rules=VECTORIZED)
    while True:
        found = yield from (propose or best_candidates)(run, beams)
        # The best num_beams that have not ended run on; ended ones among the best have finished.
        running, finishing = beams.split(found)
        beams.advance(found, running, finishing)
        run.show([step for _, step in beams.tips])
        if beams.stop:
            return run.finish(ranked(beams.finished, params.num_return_sequences), beams.stop)
        beams.nodes = yield beams.continuations


def best_candidates(run: Run, beams: Beams) -> Subroutine[Candidates]:
    """The continuations with the highest log p(text) + log p(token | text)."""
    best = yield from run.best_continuations(beams.nodes, beams.totals, beams.num_candidates)
    return beams.candidates(best.rows, best.tokens, best.log_probs)
