"""The progress of constrained beam search."""

import pytest

import visualizers
from tests.conftest import returned, step, trace
from visualizers.beams import constraint_progress


@pytest.fixture
def constrained():
    """Two phrases; the best text fulfils the first and begins the second."""

    def beam(id, parent, tick, text, event, bank, counts, forced):
        notes = {"bank": bank, "constraints": counts, "forced": forced}
        return step(id, parent, tick, text, event, 0.5, **notes)

    steps = [
        beam(0, None, 0, " a", "chosen", 0, [[0, 1], [0, 2]], False),
        beam(1, None, 0, " x", "chosen", 2, [[1, 1], [0, 2]], True),
        beam(2, None, 0, " b", "pruned", 0, [[0, 1], [0, 2]], False),
        beam(3, 1, 1, " y", "returned", 3, [[1, 1], [1, 2]], True),
        beam(4, 0, 1, " x", "finished", 2, [[1, 1], [0, 2]], False),
    ]
    words = {"force_words": [[[1]], [[3, 888], [888]]]}
    return trace("constrained_beam_search", words, steps, [returned(steps, (1, 3), -1.0)])


def test_progress_is_that_of_the_best_text_and_banks_count_all_kept_beams(constrained):
    [search] = constraint_progress._info([constrained], at=0).searches
    assert search.progress == (((1, 1), (1, 1)), ((0, 2), (1, 2)))
    assert search.forced == (True, True) and search.bank == (2, 3)
    assert search.bank_sizes == ({0: 1, 2: 1}, {3: 1, 2: 1})
    assert search.phrases == ("x", "phrase 2")  # the text of token 888 is not in the trace
    assert search.highlighted == 0


def test_real_constraints_are_named_and_end_as_the_last_step_recorded(strategy_runs):
    [search] = constraint_progress._info(strategy_runs).searches
    assert search.phrases == ("river", "of art")
    last = visualizers.best_path(strategy_runs[3])[-1].notes["constraints"]
    assert [row[-1] for row in search.progress] == [tuple(count) for count in last]
    assert len(search.bank_sizes) == len(search.axis.tokens) == 10
    assert all(bank in kept for bank, kept in zip(search.bank, search.bank_sizes, strict=True))
    assert all(sum(kept.values()) >= 4 for kept in search.bank_sizes)
