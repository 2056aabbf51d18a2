"""The numbers of the figures about drafts."""

from dataclasses import replace

import pytest

from engine.trace.rounds import Share, rounds
from playground.speculation.accounting import accounting
from tests.drafted_traces import drafted, plain, tree
from visualizers.speculative import entropy as speculative_entropy
from visualizers.speculative import heat_map as speculative_heat
from visualizers.speculative import p_against_q as speculative_p_q
from visualizers.speculative import positions as speculative_positions
from visualizers.speculative import race as speculative_race
from visualizers.speculative import theory as speculative_theory
from visualizers.speculative import timeline as speculative_timeline
from visualizers.speculative._verdicts import MARKS
from visualizers.speculative.heat_map import Cell
from visualizers.speculative.theory import Case


def test_a_timeline_has_every_round_on_the_clock_and_every_token_in_its_round():
    [lane] = speculative_timeline._info([plain("good"), tree()]).lanes
    assert [(one.began_ms, one.ended_ms) for one in lane.rounds] == [(0, 0), (0, 44), (44, 87)]
    assert len(lane.dots) == 10 and lane.highest == 3
    heights = {dot.text: dot.height for dot in lane.dots}
    assert heights == dict(zip("abcdexfghi", [1, 1, 1, 2, 2, 2, 3, 1, 2, 1], strict=True))
    third = [dot for dot in lane.dots if dot.text in "ghi"]
    assert all(44 < dot.ms < 87 for dot in third)
    assert [dot.ms for dot in third] == sorted(dot.ms for dot in third)


def test_a_timeline_draws_drafting_and_judging_and_a_mark_for_each_verdict():
    figure = speculative_timeline.speculative_timeline([tree(), drafted("good", True)])
    names = {data.name for data in figure.data}
    assert names >= {"drafting", "judging", "accepted", "rejected", "resampled", "bonus", "plain"}
    drafting = figure.data[0]
    assert drafting.x == (0, 4.0, 13.0) and drafting.base == (0, 0, 44.0)
    assert drafting.marker.pattern.shape == "/", "hatched: colour does not speak alone"


def test_no_two_verdicts_share_a_symbol_or_a_colour():
    assert len({mark.symbol for mark in MARKS.values()}) == len(MARKS)
    assert len({mark.colour for mark in MARKS.values()}) == len(MARKS)


def test_p_and_q_are_those_noted_and_a_draw_asks_for_a_p():
    trace = drafted("bad", True)
    dots = speculative_p_q._info([trace, plain("good"), drafted("lookup")]).dots
    told = [one for each in rounds(trace) for one in each.drafted]
    assert [(dot.p, dot.q, dot.verdict) for dot in dots] == [(o.p, o.q, o.verdict) for o in told]
    for dot in dots:
        if dot.verdict == "ignored":
            assert dot.least is None
        else:
            assert dot.least is not None
            assert (dot.least < dot.p) == (dot.verdict == "accepted")
    assert not speculative_p_q.needs(drafted("lookup")), "nobody says how probable a copy was"


def test_what_decided_stands_under_the_pointer():
    figure = speculative_p_q.speculative_p_q([tree()])
    rejected = next(data for data in figure.data if data.name.startswith("rejected"))
    assert any("draw 0.500 is not below min(1, p/q) = 0.250" in card for card in rejected.hovertext)


def test_shares_by_place_are_the_ledgers():
    traces = [plain("good"), tree(), drafted("good", True)]
    info = speculative_positions._info(traces)
    assert [line.place for line in info.lines] == [1, 2]
    assert info.lines[0].shares == (Share(1, 2), Share(1, 1))
    assert info.lines[1].shares == accounting(traces[2]).positions
    figure = speculative_positions._figure(info)
    assert figure.data[0].y == (0.5, 1.0) and "1 of 2 kept" in figure.data[0].hovertext[0]


def test_every_judged_token_is_in_one_group_of_like_entropy():
    traces = [drafted("good", True), drafted("bad"), tree()]
    info = speculative_entropy._info(traces)
    judged = [o for t in traces for each in rounds(t) for o in each.drafted if o.judged]
    assert len(info.dots) == len(judged) == sum(group.share.judged for group in info.groups)
    kept = sum(one.verdict == "accepted" for one in judged)
    assert sum(group.share.accepted for group in info.groups) == kept
    for dot, one in zip(info.dots, judged, strict=True):
        assert dot.entropy == one.entropy


def test_lanes_of_a_race_rise_by_a_rounds_tokens_at_once():
    info = speculative_race._info([tree(), replace(tree(), sequences=())], ["Heads", "None"])
    [lane] = info.lanes
    assert lane.seconds == (0.0, 0.043, 0.043, 0.043, 0.083)
    assert lane.pace == pytest.approx(5 / 0.083)
    figure = speculative_race.speculative_race([tree()], ["<b>"], until=0.05)
    assert (
        figure.data[0].x == (0.0, 0.0, 0.043, 0.043, 0.043) and "&lt;b&gt;" in figure.data[0].name
    )


def test_the_top_of_a_curve_is_told_and_the_run_is_a_point_beside_it():
    case = Case("A draft", (1.0, 1.5, 1.7, 1.6), (1.0, 1.2, 1.1, 0.9), 2.5, 1.05)
    poor = case._replace(label="Poor", here=(1.0, 0.9, 0.8, 0.7))
    info = speculative_theory._info([case, poor])
    assert [best.length for best in info.ideal] == [2, 2]
    assert [best.length for best in info.here] == [1, 0]
    assert info.words == "best draft length here: A draft: 1, Poor: none"
    figure = speculative_theory.theory_curves([case, poor])
    measured = [data for data in figure.data if data.name and data.name.endswith("measured")]
    assert [(data.x, data.y) for data in measured] == [((2.5,), (1.05,))] * 2
    assert {data.line.dash for data in figure.data if data.mode == "lines"} == {"solid", "dash"}


def test_a_grid_has_a_panel_for_each_exit_and_a_frame_around_the_best():
    cells = [
        Cell(1, 0.0, "exit 4", 5.0, 1.1, 0.5),
        Cell(2, 0.0, "exit 4", 7.0, 1.3, 0.4),
        Cell(1, 0.4, "exit 4", 6.0, 1.2, None),
        Cell(2, 0.4, "exit 8", 9.0, 1.0, 0.9),
        Cell(1, 0.4, "exit 8", None, None, None),
    ]
    info = speculative_heat._info(cells)
    assert info.xs == (1, 2) and info.ys == (0.0, 0.4)
    assert info.panels[0].values == ((5.0, 7.0), (6.0, None))
    assert info.panels[1].values == ((None, None), (None, 9.0))
    assert info.best == (1, 1, 1)
    assert speculative_heat._info(cells, "compression").best == (0, 0, 1)
    figure = speculative_heat.heat(cells, "draft length", "threshold", plain=4.0)
    [frame] = figure.layout.shapes
    assert (frame.x0, frame.x1, frame.y0, frame.xref) == (0.5, 1.5, 0.5, "x2")
    assert "plain decoding: 4.0" in figure.layout.title.subtitle.text


def test_figures_of_nothing_are_still_figures():
    assert not speculative_timeline.speculative_timeline([plain("good")]).data
    assert not speculative_race.speculative_race([]).data
    assert not speculative_theory.theory_curves([]).data
    assert speculative_heat._info([]).best is None
    assert speculative_heat.heat([], "x", "y").layout.title.text
