"""Races, sweeps and distribution checks, on tiny models."""

import json
import threading
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.errors import PlaygroundError
from playground import Limits, Playground
from playground.cli import race as cli
from playground.cli.main import main
from playground.speculation.acceptance import temperatures
from playground.speculation.distribution_check import (
    SIGNIFICANCE,
    DistributionCheck,
    check_distribution,
)
from playground.speculation.drafters import Drafter, all_drafters, available_drafters
from playground.speculation.grid import Axis, Sweep, axes, sweep
from playground.speculation.race import Race, race
from strategies import speculative
from tests.draft_models import draft
from tests.drafted_traces import PROMPT, SURE, choice
from tests.tiny import tiny

PLAIN = Drafter("Plain decoding", "greedy")
LOOKUP = Drafter("Prompt lookup", "prompt_lookup")
GOOD = Drafter("Good draft", *choice("good"))


@pytest.fixture(scope="module")
def lab() -> Playground:
    return Playground(tiny("llama"))


def result_of(updates: Any) -> Race:
    found = [one.result for one in updates if one.result]
    assert len(found) == 1
    return found[0]


def test_plain_decoding_comes_first_and_unavailable_drafters_give_a_reason(lab: Playground) -> None:
    drafters = all_drafters(lab)
    assert drafters[0].plain and drafters[0].strategy == "greedy"
    assert [one.strategy for one in drafters[1:5]] == [
        *("speculative", "prompt_lookup", "early_exit", "universal_speculative")
    ]
    assert drafters[5].strategy == "medusa" and drafters[5].unavailable_reason, (
        "this model has no heads"
    )
    assert available_drafters(lab) == drafters[:5]
    drawn = all_drafters(lab, do_sample=True, shaping={"top_k": 5})
    assert drawn[0].strategy == "sample" and drawn[0].settings == {"top_k": 5}
    assert all(one.settings["do_sample"] and one.settings["top_k"] == 5 for one in drawn[1:])
    refused = all_drafters(Playground(tiny("t5")))
    assert {one.strategy for one in refused if one.unavailable_reason} >= {"early_exit"}


def test_drafters_run_one_after_the_other_and_end_with_all_lanes(lab: Playground) -> None:
    events = list(race(lab, PROMPT, [PLAIN, GOOD, LOOKUP], max_new_tokens=12))
    places = [one.place for one in events]
    assert places == sorted(places) and set(places) == {0, 1, 2}
    result = result_of(events)
    assert [lane.drafter for lane in result.lanes] == [PLAIN, GOOD, LOOKUP]
    for lane in result.lanes:
        assert lane.error is None and lane.trace is not None and lane.accounting is not None
        assert len(lane.arrivals) == len(lane.trace.sequences[0].token_ids) == 12
        assert lane.written(lane.arrivals[-1]) == 12 and lane.written(-1.0) == 0
        assert lane.trace.ticks[0].forward_passes == 0, "the prompt was evaluated before the timing"
        assert lane.tokens_per_second == pytest.approx(12 / lane.seconds)
    assert result.plain is result.lanes[0] and result.speed_up(result.lanes[0]) == 1
    assert result.winner in result.lanes


def test_race_yields_every_step_while_it_runs(lab: Playground) -> None:
    updates = [one.update for one in race(lab, PROMPT, [GOOD], max_new_tokens=8) if one.update]
    trace = updates[-1].trace
    assert trace is not None
    assert {step.id for update in updates for step in update.steps} == set(range(len(trace.steps)))


def test_stopped_race_has_the_lanes_so_far(lab: Playground) -> None:
    stop, events = threading.Event(), []
    for event in race(lab, PROMPT, [PLAIN, GOOD, LOOKUP], stop=stop, max_new_tokens=50):
        events.append(event)
        if event.place == 1 and event.update:
            stop.set()
    result = result_of(events)
    assert [lane.drafter for lane in result.lanes] == [PLAIN, GOOD]
    assert result.lanes[1].trace is not None
    assert result.lanes[1].trace.stop.rule == "cancelled"
    assert result.lanes[1].accounting is not None and result.lanes[1].accounting.adds_up


def test_drafter_that_cannot_run_has_a_lane_with_an_error(lab: Playground) -> None:
    kept_out = replace(GOOD, unavailable_reason="It is Sunday.")
    wrong = Drafter("Wrong", "speculative", {"num_assistant_tokens": 0})
    result = result_of(race(lab, PROMPT, [kept_out, wrong, PLAIN], max_new_tokens=3))
    assert result.lanes[0].error == "It is Sunday."
    assert "num_assistant_tokens is 0" in (result.lanes[1].error or "")
    assert result.lanes[2].error is None and result.winner is result.lanes[2]
    with pytest.raises(PlaygroundError, match="select at least one"):
        race(lab, PROMPT, [])


GRID = (
    Axis("num_assistant_tokens", "draft length", (1, 3)),
    Axis("assistant_confidence_threshold", "threshold", (0.0, 0.9)),
)


def test_sweep_runs_every_cell_with_its_settings(lab: Playground) -> None:
    events = list(sweep(lab, PROMPT, GOOD, GRID, max_new_tokens=8))
    assert [one.done for one in events] == [0, 1, 2, 3, 4, 4] and events[-1].over
    found: Sweep = events[-1].sweep
    assert [cell.values for cell in found.cells] == [(1, 0.0), (1, 0.9), (3, 0.0), (3, 0.9)]
    assert found.plain and found.best in found.cells
    assert found.best is not None and tuple(found.settings.values()) == found.best.values
    assert list(found.settings) == [axis.setting for axis in GRID]
    for cell in found.cells:
        settings = {**GOOD.settings, "num_assistant_tokens": cell.values[0]}
        settings |= {"assistant_confidence_threshold": cell.values[1]}
        alone = result_of(
            race(lab, PROMPT, [replace(GOOD, settings=settings)], max_new_tokens=8)
        ).lanes[0]
        assert alone.accounting is not None
        assert cell.compression == alone.accounting.compression
        assert cell.acceptance == alone.accounting.acceptance


def test_sweep_can_be_stopped_and_is_limited(lab: Playground) -> None:
    stop = threading.Event()
    for events in sweep(lab, PROMPT, GOOD, GRID, stop=stop, max_new_tokens=8):
        if events.done == 2:
            stop.set()
    assert events.over and len(events.sweep.cells) == 2
    small = Playground(tiny("llama"), limits=Limits(max_new_tokens=4, strategies=2))
    with pytest.raises(PlaygroundError, match="4 cells of the grid need 16 tokens; at most 8"):
        sweep(small, PROMPT, GOOD, GRID, max_new_tokens=4)
    with pytest.raises(PlaygroundError, match="no draft length"):
        sweep(lab, PROMPT, PLAIN)


def test_grid_has_the_settings_of_its_strategy(lab: Playground) -> None:
    def names(strategy: str) -> list[str]:
        return [axis.setting for axis in axes(lab, strategy)]

    both = ["num_assistant_tokens", "assistant_confidence_threshold"]
    assert names("speculative") == names("universal_speculative") == both
    assert names("early_exit") == [*both, "assistant_early_exit"]
    assert names("prompt_lookup") == ["prompt_lookup_num_tokens", "max_matching_ngram_size"]
    assert names("greedy") == []
    narrow = Playground(tiny("llama"), limits=Limits(draft_tokens=3))
    assert axes(narrow, "speculative")[0].values == (1, 2, 3)


def counted_for(lab: Playground, drafter: Drafter, **how: Any) -> DistributionCheck:
    events = list(check_distribution(lab, PROMPT, drafter, **how))
    assert [one.result for one in events[:-1]] == [None] * (len(events) - 1)
    result = events[-1].result
    assert result is not None
    return result


BAD = Drafter("Bad draft", "speculative", {**SURE, "assistant_model": draft("llama", "bad")})


@pytest.mark.parametrize("drafter", [BAD, GOOD, LOOKUP], ids=lambda one: one.name)
def test_drafting_does_not_change_the_distribution(lab: Playground, drafter: Drafter) -> None:
    found = counted_for(lab, drafter, draws=200, top_k=4, length=2)
    assert found.passed and found.p_value > SIGNIFICANCE
    assert found.draws == sum(one.counted for one in found.outcomes) == 200
    assert sum(one.probability for one in found.outcomes) == pytest.approx(1)
    assert len(found.outcomes) == 16 and found.verified > 0
    assert "consistent with" in found.summary


def test_sampling_settings_apply_to_the_exact_probabilities_too(lab: Playground) -> None:
    shaped = replace(LOOKUP, settings={"top_p": 0.6, "do_sample": True})
    found = counted_for(lab, shaped, draws=100, top_k=6, length=1)
    assert found.passed and len(found.outcomes) < 6


def test_check_without_verified_drafts_says_so(lab: Playground) -> None:
    found = counted_for(lab, BAD, draws=50, top_k=2, length=1)
    assert found.verified == 0 and "No draft was verified" in found.summary


def test_exact_probabilities_are_those_of_the_model(lab: Playground) -> None:
    found = counted_for(lab, LOOKUP, draws=50, top_k=3, length=1)
    ids = torch.tensor([lab.model.tokenizer(PROMPT).input_ids])
    with torch.no_grad():
        logits = lab.model.module(ids).logits[0, -1]
    logits[2] = -torch.inf  # the end token may not come first
    best = logits.topk(3)
    exact = dict(zip(best.indices.tolist(), best.values.softmax(-1).tolist(), strict=True))
    assert {one.tokens[0].id: one.probability for one in found.outcomes} == pytest.approx(
        exact, rel=1e-3
    )


def test_wrong_acceptance_rule_is_found(lab: Playground, monkeypatch: pytest.MonkeyPatch) -> None:
    right = speculative.accept

    def accept_always(run: Any, tokens: Any, p: Any, q: Any, nodes: Any) -> Any:
        """Wrong: uses the drafter's distribution as the model's."""
        return right(run, tokens, torch.cat([q, p[len(q) :]]), q, nodes)

    monkeypatch.setattr(speculative, "accept", accept_always)
    found = counted_for(lab, BAD, draws=200, top_k=4, length=2)
    assert not found.passed and found.p_value < SIGNIFICANCE / 1e6
    assert "not the model's own" in found.summary


def test_power_grows_with_the_number_of_draws(lab: Playground) -> None:
    few, many = (counted_for(lab, LOOKUP, draws=draws, top_k=4, length=1) for draws in (60, 300))
    assert few.detectable_share is None or (
        many.detectable_share is not None and many.detectable_share < few.detectable_share
    )
    for (share, before), (same, after) in zip(few.power, many.power, strict=True):
        assert share == same and after >= before


def test_check_can_be_stopped_and_refuses_invalid_arguments(lab: Playground) -> None:
    stop = threading.Event()
    stop.set()
    assert [one.result for one in check_distribution(lab, PROMPT, GOOD, stop=stop)] == []
    with pytest.raises(PlaygroundError, match="top_k is 11; it must be from 2 to 10"):
        check_distribution(lab, PROMPT, GOOD, top_k=11)
    with pytest.raises(PlaygroundError, match="Sunday"):
        check_distribution(lab, PROMPT, replace(GOOD, unavailable_reason="It is Sunday."))


def test_temperatures_run_one_after_the_other(lab: Playground) -> None:
    events = list(temperatures(lab, PROMPT, GOOD, (0.3, 2.0), max_new_tokens=12))
    assert [one.done for one in events] == [1, 2, 2] and events[-1].over
    assert [one.temperature for one in events[-1].found] == [0.3, 2.0]
    assert all(one.share.verified > 0 and one.compression for one in events[-1].found)


def test_race_command_prints_a_table_and_json(
    lab: Playground, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "Playground", lambda model: lab)
    few = all_drafters(lab)[:4]
    kept_out = replace(few[1], unavailable_reason="It is Sunday.")
    monkeypatch.setattr(cli, "all_drafters", lambda lab, do_sample: (few[0], kept_out, *few[2:]))
    assert main(["race", PROMPT, "--max-new-tokens", "6"]) == 0
    head, plain, model, lookup, early = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["tokens/s", "speed-up"]
    assert plain.startswith("Plain decoding") and "1.00×" in plain
    assert model.endswith("It is Sunday.")
    assert lookup.endswith("the same") and early.endswith("the same")
    assert main(["race", PROMPT, "--max-new-tokens", "6", "--json", "-"]) == 0
    events = json.loads(capsys.readouterr().out)
    assert [one["strategy"] for one in events["lanes"]] == [one.strategy for one in few]
    assert events["lanes"][1]["error"] == "It is Sunday."
    assert all(one["adds_up"] and one["tokens"] == 6 for one in events["lanes"][2:])
