"""The numbers of the figures about attacks and calibrations."""

import pytest

from visualizers.watermark import attack as watermark_attack
from visualizers.watermark import cost as watermark_cost
from visualizers.watermark import power as watermark_power
from visualizers.watermark import roc as watermark_roc
from visualizers.watermark import scores as watermark_scores
from visualizers.watermark.attack import Point


def test_a_curve_goes_through_the_medians_and_leaves_out_what_was_not_scored():
    points = [Point(0.0, 0, 5.0), Point(0.0, 1, 7.0), Point(0.5, 0, 1.0), Point(1.0, 0, None)]
    points.append(Point(0.5, 1, None))
    info = watermark_attack._info(points, 6.0, 3.0)
    assert info.medians == ((0.0, 6.0), (0.5, 1.0))
    figure = watermark_attack.attack_curve("Delete", "how many", points, 6.0, 3.0)
    assert figure.data[0].y == (5.0, 7.0, 1.0) and figure.data[1].y == (6.0, 1.0)
    assert {shape.y0 for shape in figure.layout.shapes} == {3.0, 6.0}


def test_a_curve_of_nothing_is_still_a_figure():
    figure = watermark_attack.attack_curve("<b>", "how many", [], None, 3.0)
    assert figure.data[0].y == () and figure.layout.title.text == "&lt;b&gt;"


def test_no_false_alarm_has_a_place_left_of_the_lowest_rate_there_can_be():
    corners = [
        watermark_roc.Corner(5.0, 0.0, 0.5, 0.2, 0.8),
        watermark_roc.Corner(1.0, 0.1, 1.0, 0.7, 1.0),
    ]
    asked = [
        watermark_roc.Operating(0.1, 1.0, 0.7, 1.0, True),
        watermark_roc.Operating(0.001, 0.5, 0.2, 0.8, False),
    ]
    info = watermark_roc._info(corners, asked, 0.95, 10)
    assert [corner.false_positives for corner in info.corners] == [0.05, 0.1]
    assert [one.asked for one in info.operating] == [0.1], "ten texts cannot show one in a thousand"
    figure = watermark_roc.roc(corners, asked, 0.95, 10)
    assert "0.9500" in figure.layout.title.text
    assert figure.layout.xaxis.ticktext == ("none", "10%", "100%")


def test_every_score_is_in_one_bin_and_shares_add_up():
    info = watermark_scores._info([-0.6, 0.0, 0.4, 0.5], [4.0, 9.99], 4.0)
    assert info.width == 0.5 and info.starts[0] == -1.0 and info.starts[-1] == 9.5
    assert sum(info.human) == pytest.approx(1) and sum(info.marked) == pytest.approx(1)
    assert info.human[:4] == (0.25, 0.0, 0.5, 0.25)
    assert info.marked[info.starts.index(4.0)] == 0.5
    assert len(watermark_scores._info([0.0], [500.0], 4.0).starts) <= 50


def test_the_length_needed_is_told_and_a_power_that_was_not_reached_has_none():
    needed = [watermark_power.Needed(0.5, 2), watermark_power.Needed(0.9, None)]
    info = watermark_power._info([0.0, 0.5, 0.5], [], needed)
    assert info.words == "found: 50% from 2 tokens; never reached: 90%"
    figure = watermark_power._figure(info, 4.0)
    assert figure.data[0].x == (1, 2, 3) and [shape.x0 for shape in figure.layout.shapes] == [2]


def test_costs_stand_from_no_mark_to_the_strongest():
    told = [watermark_cost.Cost(bias, 4, 10.0, 8.0, 13.0, 1.0, 0.5) for bias in (4.0, 0.0, 1.5)]
    figure = watermark_cost.cost(told)
    assert figure.data[0].x == ("no mark", "bias 1.5", "bias 4")
    assert figure.data[0].error_y.array == (3.0,) * 3
    assert watermark_cost._info([told[0]._replace(bias=None), told[1]]).names[-1] == "marked"
