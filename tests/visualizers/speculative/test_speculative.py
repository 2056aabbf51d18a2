"""The figures of speculative decoding."""

from dataclasses import replace

import pytest

from engine.trace.rounds import Share, rounds
from playground.speculation.accounting import accounting
from tests.drafted_traces import drafted, plain, tree
from visualizers.speculative import (
    entropy,
    heat_map,
    p_against_q,
    positions,
    race,
    theory,
    timeline,
)
from visualizers.speculative._verdicts import MARKS
from visualizers.speculative.heat_map import Cell, SettingsGrid
from visualizers.speculative.theory import DraftLengthTheory


def test_a_timeline_has_every_round_in_time_and_every_token_in_its_round():
    [lane] = timeline._info([plain("good"), tree()]).lanes
    assert [(one.began_ms, one.ended_ms) for one in lane.rounds] == [(0, 0), (-4, 40), (40, 83)]
    assert len(lane.tokens) == 10 and lane.longest_draft == 3
    found = {token.text: token.position for token in lane.tokens}
    assert found == dict(zip("abcdexfghi", [1, 1, 1, 2, 2, 2, 3, 1, 2, 1], strict=True))
    third = [token.ms for token in lane.tokens if token.text in "ghi"]
    assert all(40 < ms < 83 for ms in third) and third == sorted(third)


def test_a_timeline_draws_drafting_verification_and_a_marker_for_each_verdict():
    figure = timeline.speculative_timeline([tree(), drafted("good", True)])
    names = {data.name for data in figure.data}
    verdicts = {"accepted", "rejected", "resampled", "bonus", "no draft"}
    assert names >= {"drafting", "verification", *verdicts}
    drafting = figure.data[0]
    assert drafting.x == (0, 4.0, 13.0) and drafting.base == (0, -4.0, 40.0)
    assert drafting.marker.pattern.shape == "/", "hatched: colour is not the only cue"


def test_no_two_verdicts_share_a_symbol_or_a_colour():
    assert len({mark.symbol for mark in MARKS.values()}) == len(MARKS)
    assert len({mark.colour for mark in MARKS.values()}) == len(MARKS)


def test_p_and_q_are_those_recorded_and_a_draw_requires_a_p():
    trace = drafted("bad", True)
    tokens = p_against_q._info([trace, plain("good"), drafted("lookup")]).tokens
    recorded = [(one.p, one.q, one.verdict) for each in rounds(trace) for one in each.drafted]
    assert [(token.p, token.q, token.verdict) for token in tokens] == recorded
    for token in tokens:
        if token.verdict == "ignored":
            assert token.required is None
        else:
            assert token.required is not None
            assert (token.required < token.p) == (token.verdict == "accepted")
    assert not p_against_q.needs(drafted("lookup")), "a copied token has no q"


def test_hover_text_shows_the_draw_that_decided():
    figure = p_against_q.speculative_p_q([tree()])
    rejected = next(data for data in figure.data if data.name.startswith("rejected"))
    assert any("draw 0.500 ≥ min(1, p/q) = 0.250" in text for text in rejected.hovertext)


def test_acceptance_by_position_is_that_of_the_accounting():
    traces = [plain("good"), tree(), drafted("good", True)]
    info = positions._info(traces)
    assert [line.run for line in info.lines] == [1, 2]
    assert info.lines[0].shares == (Share(1, 2), Share(1, 1))
    assert info.lines[1].shares == accounting(traces[2]).positions
    figure = positions._figure(info)
    assert figure.data[0].y == (0.5, 1.0) and "1 of 2 accepted" in figure.data[0].hovertext[0]


def test_every_verified_token_is_in_one_range_of_entropies():
    traces = [drafted("good", True), drafted("bad"), tree()]
    info = entropy._info(traces)
    verified = [o for t in traces for each in rounds(t) for o in each.drafted if o.verified]
    assert len(info.tokens) == len(verified) == sum(one.share.verified for one in info.bins)
    accepted = sum(one.verdict == "accepted" for one in verified)
    assert sum(one.share.accepted for one in info.bins) == accepted
    assert [token.entropy for token in info.tokens] == [one.entropy for one in verified]


def test_the_line_of_a_run_rises_by_the_tokens_of_a_round_at_once():
    [lane] = race._info([tree(), replace(tree(), sequences=())]).lanes
    assert lane.seconds == (0.0, 0.043, 0.043, 0.043, 0.083)
    assert lane.tokens_per_second == pytest.approx(5 / 0.083)
    [line] = race.speculative_race([replace(tree(), strategy="<b>")]).data
    assert line.x == (0.0, 0.0, 0.043, 0.043, 0.043, 0.083) and "&lt;b&gt;" in line.name


def test_the_best_draft_length_is_named_and_the_run_is_a_point():
    case = DraftLengthTheory("Drafter", (1.0, 1.5, 1.7, 1.6), (1.0, 1.2, 1.1, 0.9), 2.5, 1.05)
    info = theory._info(case)
    assert (info.best_ideal.length, info.best_here.length) == (2, 1)
    figure = theory.speculative_theory(case)
    assert figure.layout.title.subtitle.text == "Drafter · best draft length here: 1"
    [measured] = [data for data in figure.data if data.name == "measured"]
    assert (measured.x, measured.y) == ((2.5,), (1.05,))
    assert {data.line.dash for data in figure.data if data.mode == "lines"} == {"solid", "dash"}


def test_where_no_draft_pays_the_best_draft_length_is_none():
    case = DraftLengthTheory("Drafter", (1.0, 1.5), (1.0, 0.9), 1.0, 0.8)
    subtitle = theory.speculative_theory(case).layout.title.subtitle.text
    assert subtitle == "Drafter · best draft length here: none"


def test_a_grid_has_a_panel_for_each_exit_layer_and_a_frame_around_the_fastest_run():
    cells = (
        Cell(1, 0.0, "exit 4", 5.0, 1.1, 0.5),
        Cell(2, 0.0, "exit 4", 7.0, 1.3, 0.4),
        Cell(1, 0.4, "exit 4", 6.0, 1.2, None),
        Cell(2, 0.4, "exit 8", 9.0, 1.0, 0.9),
        Cell(1, 0.4, "exit 8", None, None, None),
    )
    grid = SettingsGrid(cells, "draft length", "threshold", plain=4.0)
    info = heat_map._info(grid)
    assert info.xs == (1, 2) and info.ys == (0.0, 0.4)
    assert info.panels[0].values == ((5.0, 7.0), (6.0, None))
    assert info.panels[1].values == ((None, None), (None, 9.0))
    assert info.best == (1, 1, 1)
    figure = heat_map.speculative_grid(grid)
    [frame] = figure.layout.shapes
    assert (frame.x0, frame.x1, frame.y0, frame.xref) == (0.5, 1.5, 0.5, "x2")
    assert "plain decoding: 4.0" in figure.layout.title.subtitle.text


def test_figures_without_data_are_drawn():
    assert not timeline.speculative_timeline([plain("good")]).data
    assert not race.speculative_race([]).data
    grid = SettingsGrid((), "x", "y")
    assert heat_map._info(grid).best is None
    assert heat_map.speculative_grid(grid).layout.title.text
