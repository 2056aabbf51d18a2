"""Settings are checked as they are declared."""

import math

import pytest

from engine.errors import PlaygroundError
from engine.settings import SHARED, Limits, Setting, check
from engine.strategy import Strategy
from strategies import registered

LIMITS = Limits()
DECLARED = [
    pytest.param(setting, id=f"{strategy.id}-{setting.name}")
    for strategy in registered().values()
    for setting in strategy.own_settings.values()
] + [pytest.param(setting, id=setting.name) for setting in SHARED.values()]


@pytest.mark.parametrize("setting", DECLARED)
def test_defaults_and_bounds_are_allowed_and_values_beyond_them_raise_an_error(
    setting: Setting,
) -> None:
    assert setting.help.endswith(".")
    assert setting.check(setting.default, LIMITS) == setting.default
    if setting.kind not in (int, float):
        return
    step = 1 if setting.kind is int else 1e-6
    high = setting.highest(LIMITS)
    beyond = [math.nan, math.inf, "many", True, [1]]
    beyond += [1.5] if setting.kind is int else []
    if setting.low is not None:
        beyond.append(setting.kind(setting.low) - (0 if setting.open_low else step))
        inside = setting.kind(setting.low) + (step if setting.open_low else 0)
        assert setting.check(inside, LIMITS) == inside
    if high is not None:
        assert setting.check(setting.kind(high), LIMITS) == high
        beyond.append(setting.kind(high) + step)
    for value in beyond:
        with pytest.raises(PlaygroundError, match=rf"^{setting.name} is .*; it must be "):
            setting.check(value, LIMITS)


def test_choices_of_different_types_are_distinct() -> None:
    early = registered()["beam_search"].own_settings["early_stopping"]
    assert early.check(True, LIMITS) is True
    for wrong in (1, 0, "always"):
        with pytest.raises(PlaygroundError, match="one of False, True, 'never'"):
            early.check(wrong, LIMITS)


def test_an_unknown_setting_raises_an_error_with_a_suggestion() -> None:
    beams = registered()["beam_search"]
    with pytest.raises(PlaygroundError) as refusal:
        check({"num_beam": 3}, beams.settings, LIMITS, beams.id)
    assert str(refusal.value) == (
        "unknown setting 'num_beam' for beam_search; did you mean 'num_beams'?"
    )


@pytest.mark.parametrize("strategy", registered().values(), ids=lambda strategy: strategy.id)
def test_every_strategy_and_setting_has_a_description(strategy: Strategy) -> None:
    assert strategy.summary.endswith(".")
    assert set(strategy.own_settings).isdisjoint(SHARED)
