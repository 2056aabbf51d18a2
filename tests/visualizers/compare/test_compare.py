"""The numbers of the figures that set runs beside each other."""

import math
from dataclasses import replace

import pytest

import visualizers
from tests.visualizers.samples import Word, chain, forked, old, scored, unseen
from visualizers.compare import cross_likelihood as crossed
from visualizers.compare import cumulative, difference, probability, rank, varentropy

log = math.log


# Ranks


def test_ranks_are_counted_by_how_far_down_they_are():
    ranks = [1, 1, 2, 10, 11, 100, 101, 1000, 1001, 40_000]
    trace = chain("sample", [Word(place, rank=rank) for place, rank in enumerate(ranks)])
    info = rank._info([trace])
    assert [point.rank for point in info.lines[0].points] == ranks
    assert info.counts == ((2, 2, 2, 2, 2),)


def test_a_rank_nobody_saw_is_a_gap_and_is_not_counted():
    trace = unseen(chain("custom", [Word(1), Word(2, rank=7), Word(3)]), 1)
    info = rank._info([trace])
    assert info.counts == ((2, 0, 0, 0, 0),)
    assert rank._figure(info).data[0].y == (1, None, 1)


def test_the_axis_of_ranks_is_logarithmic_and_starts_with_the_most_probable():
    axis = rank.rank([chain("sample", [Word(1), Word(2, rank=500)])]).layout.yaxis
    assert axis.type == "log"
    assert axis.range[0] > log(500, 10) > 0 > axis.range[1] > log(0.5, 10)


def test_greedy_takes_what_the_real_model_ranks_first(real):
    info = rank._info([real["greedy"], real["sample"]])
    assert info.counts[0] == (8, 0, 0, 0, 0)
    assert sum(info.counts[1]) == 8 > info.counts[1][0]


# Cumulative log-probability


def test_log_probabilities_add_up_along_the_text():
    (line,) = cumulative._info([chain("sample", [Word(1, 0.5, 0.8), Word(2, 0.25, 0.5)])]).lines
    assert [point.raw for point in line.points] == pytest.approx([log(0.5), log(0.125)])
    assert [point.final for point in line.points] == pytest.approx([log(0.8), log(0.4)])


def test_a_sum_ends_where_a_token_was_not_captured():
    words = [Word(1, 0.5, 0.5), Word(2, None, None), Word(3)]
    (line,) = cumulative._info([chain("custom", words)]).lines
    assert [point.raw for point in line.points] == [pytest.approx(log(0.5)), None, None]
    assert (
        "cut or not captured"
        in cumulative._figure(cumulative._info([chain("c", words)])).data[0].hovertext[2]
    )


def test_the_sum_as_used_ends_at_a_cut_token_and_the_models_goes_on():
    words = [Word(1, 0.5, 1.0), Word(2, 0.5, None), Word(3, 0.5, 1.0)]
    (line,) = cumulative._info([chain("custom", words)]).lines
    assert [point.final for point in line.points] == [0.0, None, None]
    assert line.points[2].raw == pytest.approx(3 * log(0.5))


def test_equal_sums_are_drawn_once():
    plain, warped = chain("greedy", [Word(1)]), chain("sample", [Word(1, 0.5, 0.9)])
    assert [data.line.dash for data in cumulative.cumulative([plain]).data] == [None]
    assert [data.line.dash for data in cumulative.cumulative([warped]).data] == [None, "dot"]


def test_the_sum_of_a_real_beam_is_the_score_without_length(real):
    beam = real["beam_search"]
    (line,) = cumulative._info([beam]).lines
    last = visualizers.best_path(beam)[-1]
    assert line.points[-1].raw == pytest.approx(last.notes["total"], abs=1e-3)


# Lines of forks


def test_a_fork_begins_where_the_text_before_it_ends(real):
    (line,) = probability._info([forked(real["sample"], 3)]).lines
    assert [*line.places] == [4, 5, 6, 7, 8]
    assert probability.probability([forked(real["sample"], 3)]).data[0].x == (4, 5, 6, 7, 8)


# Where texts part


@pytest.fixture
def parting():
    """Both write 5; then one takes 6 (60 %), the other 7, which the first gave 30 %, then 20 %."""
    first = chain("greedy", [Word(5), Word(6, 0.6, 0.7, rivals=((7, 0.3, 0.2),)), Word(8)])
    second = chain("sample", [Word(5), Word(7, 0.3, 0.9, rivals=((9, 0.1, 0.1),)), Word(8)])
    return first, second


def test_runs_part_at_the_first_token_they_do_not_share(parting):
    (pair,) = difference._info(parting).pairs
    assert pair.at == 1
    assert (pair.first.token.id, pair.second.token.id) == (6, 7)
    assert pair.gap == pytest.approx(log(0.6 / 0.3))


def test_each_run_says_what_it_gave_the_others_token(parting):
    (pair,) = difference._info(parting).pairs
    assert (pair.first.other_raw, pair.first.other_final) == (0.3, 0.2)
    assert (pair.second.other_raw, pair.second.other_final) == (None, None)
    hovers = "".join(str(data.hovertext) for data in difference.difference(parting).data)
    assert "instead of <b>␣w7</b>: sample, gap +0.69 nats" in hovers
    assert "greedy gave it: model 30.0%, as used 20.0%" in hovers
    assert "instead of <b>␣w6</b>: greedy, gap -0.69 nats" in hovers
    assert "sample gave it: not among the recorded candidates" in hovers


def test_a_token_the_other_run_had_cut_is_said_to_be_cut():
    first = chain("greedy", [Word(6, 0.6, 1.0, rivals=((7, 0.3, 0.0),))])
    figure = difference.difference([first, chain("sample", [Word(7, 0.3, 0.3)])])
    assert "greedy gave it: model 30.0%, as used cut" in str(figure.data)


def test_runs_share_a_row_until_they_part(parting):
    lanes = difference._info(parting).lanes
    assert [(lane.runs, lane.row, lane.start, len(lane.tokens)) for lane in lanes] == [
        ((0, 1), 0, 0, 1),
        ((0,), 0, 1, 2),
        ((1,), 1, 1, 2),
    ]


def test_equal_texts_stay_on_one_row_to_their_end(parting):
    info = difference._info([parting[0], replace(parting[0], strategy="speculative")])
    assert info.pairs[0].at is None
    assert [(lane.runs, lane.row, lane.last) for lane in info.lanes] == [((0, 1), 0, True)]
    assert difference._figure(info).layout.yaxis.ticktext == ("greedy<br>speculative",)


def test_a_text_that_ends_earlier_parts_where_it_ends():
    info = difference._info([chain("greedy", [Word(5), Word(6)]), chain("sample", [Word(5)])])
    (pair,) = info.pairs
    assert (pair.at, pair.second.token, pair.gap) == (1, None, None)
    assert "the text ends" in str(difference._figure(info).data)


def test_a_fork_is_compared_with_all_that_stands_before_it(parting):
    first, _ = parting
    fork = chain("sample", [Word(8)], before=[5, 7])
    (pair,) = difference._info([first, fork]).pairs
    assert pair.at == 1
    assert pair.second == (1, fork.prefix[1], None, None, None, None)
    assert pair.gap == pytest.approx(log(0.6 / 0.3))


def test_texts_of_other_prompts_are_not_compared(parting):
    first, second = parting
    info = difference._info([first, replace(second, prompt_tokens=())])
    assert info.pairs == () and [lane.parent for lane in info.lanes] == [None, None]


def test_three_texts_that_part_twice_never_cross():
    texts = ([5, 6, 7], [5, 8, 9], [5, 6, 4])
    lanes = difference._info([chain(f"s{ids}", [Word(id) for id in ids]) for ids in texts]).lanes
    rows = {lane.runs: (lane.row, lane.parent) for lane in lanes}
    assert rows == {(0, 1, 2): (0, None), (0, 2): (0, 0), (0,): (0, 0), (2,): (1, 0), (1,): (2, 0)}


def test_one_run_has_nothing_to_differ_from(parting):
    figure = difference.difference(parting[:1])
    assert not figure.data and "two runs" in figure.layout.annotations[0].text
    assert "difference" not in [view.id for view in visualizers.applicable(parting[:1])]
    assert "difference" in [view.id for view in visualizers.applicable(parting)]


def test_a_parting_far_into_long_texts_is_shown_without_all_that_is_shared():
    shared = [Word(id) for id in range(300)]
    runs = [chain("greedy", [*shared, Word(301)]), chain("sample", [*shared, Word(302)])]
    figure = difference.difference(runs)
    assert figure.layout.xaxis.range[0] > 290
    assert len(figure.layout.annotations) < 20 and figure.layout.meta["min_width"] < 600


def test_real_runs_part_where_their_tokens_do_and_agree_on_the_model(real):
    traces = [*real.values()]
    for pair in difference._info(traces).pairs:
        first, second = (traces[side.run].sequences[0].token_ids for side in pair[1:3])
        if pair.at is None:
            assert first == second
            continue
        assert first[: pair.at] == second[: pair.at]
        assert first[pair.at : pair.at + 1] != second[pair.at : pair.at + 1]
        if pair.first.other_raw is not None and pair.second.raw is not None:
            # One place, one distribution: what one run gave the token the other took it with.
            assert pair.first.other_raw == pytest.approx(pair.second.raw, abs=1e-3)


# Kinds of uncertainty


def test_the_guides_are_the_medians_of_all_tokens():
    first = chain(
        "greedy", [Word(1, entropy=1.0, varentropy=2.0), Word(2, entropy=3, varentropy=8)]
    )
    second = chain("sample", [Word(1, entropy=2.0, varentropy=5.0), Word(2)])
    info = varentropy._info([first, second])
    assert (info.median_entropy, info.median_varentropy) == (2.0, 5.0)
    assert [len(cloud.dots) for cloud in info.clouds] == [2, 1]
    assert info.clouds[0].dots[1] == (1, " w2", 3, 8)


def test_traces_that_did_not_record_it_are_left_out_and_keep_the_others_colours(real):
    info = varentropy._info([old(real["greedy"]), real["sample"]])
    assert [cloud.place for cloud in info.clouds] == [1]
    assert not varentropy.needs(old(real["greedy"]))


def test_the_dots_are_what_real_steps_recorded(real):
    (cloud,) = varentropy._info([real["sample"]]).clouds
    path = visualizers.best_path(real["sample"])
    assert [(dot.entropy, dot.varentropy) for dot in cloud.dots] == [
        (step.distribution.raw_entropy, step.distribution.raw_varentropy) for step in path
    ]


def test_the_token_pointed_out_gets_a_ring_in_every_run(real):
    traces = [real["greedy"], forked(real["sample"], 3)]
    assert len(varentropy.varentropy(traces).data) == 2
    assert len(varentropy.varentropy(traces, 4).data) == 4
    assert len(varentropy.varentropy(traces, 1).data) == 3  # the fork had not begun


# Texts against strategies


def test_a_cell_is_the_mean_over_the_tokens_that_were_not_cut():
    text = [Word(1, 0.5, 0.25), Word(2, 0.25, None), Word(3, 0.5, 0.5)]
    info = crossed._info([scored(chain("x", text), "sample", top_k=2)])
    assert info.columns == ("the model itself", "sample · top_k=2")
    ((own, strategy),) = info.cells
    assert own == (pytest.approx((2 * log(0.5) + log(0.25)) / 3), 0, 3)
    assert strategy == (pytest.approx((log(0.25) + log(0.5)) / 2), 1, 3)
    assert "1 cut" in crossed._figure(info).data[0].text[0][1]


def test_rows_are_texts_and_columns_are_strategies_with_their_settings():
    one, two = chain("x", [Word(1)]), chain("x", [Word(2)])
    ways = [("greedy", {}), ("sample", {"top_k": 2}), ("sample", {"top_k": 9})]
    traces = [scored(text, way, **settings) for text in (one, two) for way, settings in ways]
    info = crossed._info(traces[:-1])
    assert info.texts == (" w1", " w2")
    assert info.columns[1:] == ("greedy", "sample · top_k=2", "sample · top_k=9")
    assert info.cells[1][3] is None and all(info.cells[0])
    assert [word.text for word in crossed._figure(info).layout.annotations] == ["not scored"]


def test_a_text_that_a_strategy_could_never_have_written_has_no_number():
    info = crossed._info([scored(chain("x", [Word(1, 0.5, None)] * 2), "greedy")])
    assert info.cells[0][1] == (None, 2, 2)
    assert [word.text for word in crossed._figure(info).layout.annotations] == ["all 2 cut"]


def test_equal_endings_of_different_beginnings_are_different_texts():
    texts = [chain("x", [Word(1)], before=[before]) for before in (4, 5)]
    assert len(crossed._info([scored(text) for text in texts]).texts) == 2


def test_only_texts_that_were_given_are_crossed(real):
    assert not any(map(crossed.needs, real.values()))
    mixed = crossed._info([real["greedy"], scored(real["greedy"])])
    assert len(mixed.cells) == 1
    own = [step.raw for step in real["greedy"].steps]
    assert mixed.cells[0][0].mean == pytest.approx(sum(own) / len(own))


def test_long_names_break_between_words_and_end_in_dots():
    assert crossed._wrapped("sample · repetition_penalty=1.3", 16, 4).split("<br>") == [
        "sample ·",
        "repetition_",
        "penalty=1.3",
    ]
    assert crossed._wrapped("<b> " * 30, 12, 2) == "&lt;b&gt; &lt;b&gt; &lt;b&gt;<br>" + (
        "&lt;b&gt; &lt;b&gt; &lt;b&gt;…"
    )
