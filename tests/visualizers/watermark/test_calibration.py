"""The figures of attacks and calibrations."""

import pytest

from visualizers.watermark import attack, cost, power, roc, scores
from visualizers.watermark.attack import AttackCurve, AttackResult
from visualizers.watermark.cost import BiasCost, WatermarkCost
from visualizers.watermark.power import DetectionPower, LengthNeeded
from visualizers.watermark.roc import OperatingPoint, RocCurve, RocPoint
from visualizers.watermark.scores import ScoreSamples


def test_a_curve_goes_through_the_medians_and_leaves_out_texts_without_a_score():
    values = [(0.0, 0, 5.0), (0.0, 1, 7.0), (0.5, 0, 1.0), (1.0, 0, None), (0.5, 1, None)]
    results = tuple(AttackResult(*value) for value in values)
    curve = AttackCurve("Delete", "share of tokens", results, 6.0, 3.0)
    assert attack._info(curve).medians == ((0.0, 6.0), (0.5, 1.0))
    figure = attack.watermark_attack(curve)
    assert figure.data[0].y == (5.0, 7.0, 1.0) and figure.data[1].y == (6.0, 1.0)
    assert {shape.y0 for shape in figure.layout.shapes} == {3.0, 6.0}


def test_a_curve_without_results_is_drawn():
    figure = attack.watermark_attack(AttackCurve("<b>", "share of tokens", (), None, 3.0))
    assert figure.data[0].y == () and figure.layout.title.text == "&lt;b&gt;"


def test_a_false_positive_rate_of_0_stands_left_of_the_lowest_rate_the_texts_can_show():
    curve = RocCurve(
        (RocPoint(5.0, 0.0, 0.5, 0.2, 0.8), RocPoint(1.0, 0.1, 1.0, 0.7, 1.0)),
        (
            OperatingPoint(0.1, 1.0, 0.7, 1.0, True),
            OperatingPoint(0.001, 0.5, 0.2, 0.8, False),
        ),
        auc=0.95,
        human_texts=10,
    )
    info = roc._info(curve)
    assert [point.false_positive_rate for point in info.points] == [0.05, 0.1]
    shown = [point.false_positive_rate for point in info.operating_points]
    assert shown == [0.1], "ten texts cannot show one in a thousand"
    figure = roc.watermark_roc(curve)
    assert "0.9500" in figure.layout.title.text
    assert figure.layout.xaxis.ticktext == ("0", "10%", "100%")


def test_every_score_is_in_one_bin_and_shares_add_up():
    info = scores._info(ScoreSamples((-0.6, 0.0, 0.4, 0.5), (4.0, 9.99), 4.0))
    assert info.width == 0.5 and info.starts[0] == -1.0 and info.starts[-1] == 9.5
    assert sum(info.human) == pytest.approx(1) and sum(info.watermarked) == pytest.approx(1)
    assert info.human[:4] == (0.25, 0.0, 0.5, 0.25)
    assert info.watermarked[info.starts.index(4.0)] == 0.5
    assert len(scores._info(ScoreSamples((0.0,), (500.0,), 4.0)).starts) <= 50


def test_the_subtitle_names_the_lengths_needed_and_the_powers_not_reached():
    needed = (LengthNeeded(0.5, 2), LengthNeeded(0.9, None))
    sample = DetectionPower((0.0, 0.5, 0.5), (), needed, 4.0)
    assert power._info(sample).subtitle == "detected: 50% from 2 tokens; not reached: 90%"
    figure = power.watermark_power(sample)
    assert figure.data[0].x == (1, 2, 3) and [shape.x0 for shape in figure.layout.shapes] == [2]


def test_costs_are_ordered_from_no_watermark_to_the_strongest():
    costs = tuple(BiasCost(bias, 4, 10.0, 8.0, 13.0, 1.0, 0.5) for bias in (4.0, 0.0, 1.5))
    figure = cost.watermark_cost(WatermarkCost(costs))
    assert figure.data[0].x == ("no watermark", "bias 1.5", "bias 4")
    assert figure.data[0].error_y.array == (3.0,) * 3
    without_bias = WatermarkCost((costs[0]._replace(bias=None), costs[1]))
    assert cost._info(without_bias).names == ("no watermark", "watermarked")
