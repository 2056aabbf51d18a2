"""Where the texts of runs diverge."""

import math
from dataclasses import replace

import pytest

import visualizers
from tests.visualizers.samples import Word, chain
from visualizers.compare import divergence

log = math.log


def hover_texts(figure):
    return "".join(text for data in figure.data for text in data.hovertext or ())


@pytest.fixture
def diverging():
    """Both choose 5; then one chooses 6 (60 %), the other 7, which the first gave 30 %, then 20 %
    after its processors."""
    first = chain("greedy", [Word(5), Word(6, 0.6, 0.7, rivals=((7, 0.3, 0.2),)), Word(8)])
    second = chain("sample", [Word(5), Word(7, 0.3, 0.9, rivals=((9, 0.1, 0.1),)), Word(8)])
    return first, second


def test_runs_diverge_at_the_first_token_that_differs(diverging):
    (pair,) = divergence._info(diverging).pairs
    assert pair.at == 1
    assert (pair.first.token.id, pair.second.token.id) == (6, 7)
    assert pair.gap == pytest.approx(log(0.6 / 0.3))


def test_hover_text_shows_the_probability_each_run_gave_the_others_token(diverging):
    (pair,) = divergence._info(diverging).pairs
    assert (pair.first.other_raw, pair.first.other_final) == (0.3, 0.2)
    assert (pair.second.other_raw, pair.second.other_final) == (None, None)
    hovers = hover_texts(divergence.divergence(diverging))
    assert "instead of <b>␣w7</b>: sample, gap +0.69 nats" in hovers
    assert "in greedy: model 30.0%, after processors 20.0%" in hovers
    assert "instead of <b>␣w6</b>: greedy, gap -0.69 nats" in hovers
    assert "in sample: not among the recorded candidates" in hovers


def test_a_token_that_the_other_run_cut_is_shown_as_cut():
    first = chain("greedy", [Word(6, 0.6, 1.0, rivals=((7, 0.3, 0.0),))])
    figure = divergence.divergence([first, chain("sample", [Word(7, 0.3, 0.3)])])
    assert "in greedy: model 30.0%, after processors cut" in hover_texts(figure)


def test_runs_share_a_row_until_they_diverge(diverging):
    segments = divergence._info(diverging).segments
    assert [
        (segment.runs, segment.row, segment.start, len(segment.tokens)) for segment in segments
    ] == [
        ((0, 1), 0, 0, 1),
        ((0,), 0, 1, 2),
        ((1,), 1, 1, 2),
    ]


def test_equal_texts_stay_on_one_row_to_their_end(diverging):
    info = divergence._info([diverging[0], replace(diverging[0], strategy="speculative")])
    assert info.pairs[0].at is None
    assert [(segment.runs, segment.row, segment.last) for segment in info.segments] == [
        ((0, 1), 0, True)
    ]
    assert divergence._figure(info).layout.yaxis.ticktext == ("greedy<br>speculative",)


def test_a_text_that_ends_earlier_diverges_where_it_ends():
    info = divergence._info([chain("greedy", [Word(5), Word(6)]), chain("sample", [Word(5)])])
    (pair,) = info.pairs
    assert (pair.at, pair.second.token, pair.gap) == (1, None, None)
    assert "end of text" in hover_texts(divergence._figure(info))


def test_a_fork_is_compared_from_the_start_of_the_text(diverging):
    first, _ = diverging
    fork = chain("sample", [Word(8)], before=[5, 7])
    (pair,) = divergence._info([first, fork]).pairs
    assert pair.at == 1
    assert pair.second == (1, fork.prefix[1], None, None, None, None)
    assert pair.gap == pytest.approx(log(0.6 / 0.3))


def test_texts_of_different_prompts_are_not_compared(diverging):
    first, second = diverging
    info = divergence._info([first, replace(second, prompt_tokens=())])
    assert info.pairs == () and [segment.parent for segment in info.segments] == [None, None]


def test_rows_of_three_texts_that_diverge_twice_do_not_cross():
    texts = ([5, 6, 7], [5, 8, 9], [5, 6, 4])
    segments = divergence._info(
        [chain(f"s{ids}", [Word(id) for id in ids]) for ids in texts]
    ).segments
    rows = {segment.runs: (segment.row, segment.parent) for segment in segments}
    assert rows == {(0, 1, 2): (0, None), (0, 2): (0, 0), (0,): (0, 0), (2,): (1, 0), (1,): (2, 0)}


def test_a_single_run_shows_a_message(diverging):
    figure = divergence.divergence(diverging[:1])
    assert not figure.data and "two runs" in figure.layout.annotations[0].text
    assert "divergence" not in [view.id for view in visualizers.applicable(diverging[:1])]
    assert "divergence" in [view.id for view in visualizers.applicable(diverging)]


def test_a_late_divergence_is_shown_without_the_long_shared_text():
    shared = [Word(id) for id in range(300)]
    runs = [chain("greedy", [*shared, Word(301)]), chain("sample", [*shared, Word(302)])]
    figure = divergence.divergence(runs)
    assert figure.layout.xaxis.range[0] > 290
    assert len(figure.layout.annotations) < 20 and figure.layout.meta["min_width"] < 600


def test_real_runs_diverge_where_their_tokens_differ_and_agree_on_the_models_probability(real):
    traces = [*real.values()]
    for pair in divergence._info(traces).pairs:
        first, second = (traces[side.run].sequences[0].token_ids for side in pair[1:3])
        if pair.at is None:
            assert first == second
            continue
        assert first[: pair.at] == second[: pair.at]
        assert first[pair.at : pair.at + 1] != second[pair.at : pair.at + 1]
        if pair.first.other_raw is not None and pair.second.raw is not None:
            # The same text before it, so the same distribution of the model.
            assert pair.first.other_raw == pytest.approx(pair.second.raw, abs=1e-3)
