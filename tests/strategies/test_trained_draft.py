"""Trained draft models and exits: when they are the default, and the counts of their rounds."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.models import loading as models
from engine.models import trained
from engine.models.model import Model
from engine.trace import Trace
from engine.trie.early_exit import first_layers
from playground import Playground
from tests.draft_models import deep, train
from tests.recordings import as_on_a_gpu
from tests.tiny import SIZE, tiny

PROMPT = "Hello there, hello"
SURE = {"assistant_confidence_threshold": 0.0}
KEPT = 150


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Playground:
    """A model of four layers, the first of which was trained to draft for it."""
    model = replace(deep(4), name="somewhere")
    train(model, tmp_path, monkeypatch, kept=KEPT)
    return Playground(model, drafts=[])


def compare(lab: Playground, *choices: Any, **shared: Any) -> list[Trace]:
    traces = lab.compare(PROMPT, list(choices), **{"max_new_tokens": 24, **shared})
    assert [trace.error for trace in traces] == [None] * len(choices)
    return traces


def fates(trace: Trace) -> Counter[str]:
    return Counter(step.notes["verdict"] for step in trace.steps)


# Defaults


def test_the_trained_draft_model_is_the_default(lab: Playground) -> None:
    greedy, usual, named = compare(
        lab, "greedy", "speculative", ("speculative", {"assistant_model": "tiny-draft"})
    )
    assert usual.settings == named.settings
    assert usual.settings["assistant_model"] == "tiny-draft"
    assert usual.settings.items() >= trained.DRAFT_DEFAULTS.items()
    assert lab.defaults("speculative").items() >= trained.DRAFT_DEFAULTS.items()
    assert usual.draft_passes > 0 and fates(usual) == fates(named)
    for trace in (usual, named):
        assert trace.sequences[0].token_ids == greedy.sequences[0].token_ids
    assert {**fates(usual)}.keys() > {"accepted"}


def test_the_trained_exit_is_the_default(lab: Playground) -> None:
    ways = [{"assistant_early_exit": 2}, {"trained_exit": True}, {"trained_exit": False}]
    sure = [("early_exit", {**SURE, **way}) for way in ways]
    greedy, usual, two, one, untrained = compare(lab, "greedy", "early_exit", *sure)
    assert usual.settings.items() >= {"assistant_early_exit": 1, **trained.EXIT_DEFAULTS}.items()
    assert lab.defaults("early_exit").items() >= trained.EXIT_DEFAULTS.items()
    for trace in (usual, one, two, untrained):
        assert trace.draft_passes > 0
        assert trace.sequences[0].token_ids == greedy.sequences[0].token_ids
    least, own = (
        min(step.token.id for step in trace.steps if "q" in step.notes)
        for trace in (one, untrained)
    )
    assert own < SIZE - KEPT <= least, "an exit scores the kept tokens only"
    assert two.settings["assistant_early_exit"] == 2, "no exit was trained for this layer"


def test_each_exit_has_graphs_of_its_own(lab: Playground, monkeypatch: pytest.MonkeyPatch) -> None:
    choices = [("early_exit", {**SURE, "trained_exit": way}) for way in (True, False)]
    expected = [fates(trace) for trace in compare(lab, *choices)]
    as_on_a_gpu(monkeypatch)
    twin = Playground(lab.model, drafts=[])
    assert [fates(trace) for trace in compare(twin, *choices)] == expected
    assert expected[0] != expected[1]


def test_given_settings_override_the_trained_defaults(lab: Playground) -> None:
    [trace] = compare(lab, ("speculative", {**SURE, "num_assistant_tokens": 2}))
    assert trace.settings.items() >= {**SURE, "num_assistant_tokens": 2}.items()
    rounds = Counter(step.notes["round"] for step in trace.steps if "q" in step.notes)
    assert set(list(rounds.values())[:-1]) == {2}


def test_a_model_named_as_its_own_draft_model_drafts_for_itself(lab: Playground) -> None:
    [trace] = compare(lab, ("speculative", {**SURE, "assistant_model": "somewhere"}))
    assert set(fates(trace)) == {"accepted", "bonus"}


def test_a_model_without_a_trained_draft_drafts_for_itself() -> None:
    lab = Playground(tiny("llama"))
    [trace] = compare(lab, ("speculative", SURE))
    assert trace.settings["assistant_model"] is None
    assert trace.settings["num_assistant_tokens"] == 20
    assert set(fates(trace)) == {"accepted", "bonus"}
    assert lab.defaults("speculative")["assistant_model"] is None


@pytest.mark.parametrize("do_sample", [False, True])
def test_processors_may_cut_all_tokens_that_a_draft_model_scores(
    lab: Playground, do_sample: bool
) -> None:
    rest = {"suppress_tokens": list(range(SIZE - KEPT, SIZE))}
    own = {**SURE, "do_sample": do_sample, "top_k": 0}
    greedy, trace = compare(lab, "greedy", ("speculative", own), **rest)
    assert max(trace.sequences[0].token_ids) < SIZE - KEPT
    assert do_sample or trace.text == greedy.text


# The drafts in the repository


@pytest.mark.parametrize("chat", [False, True])
def test_the_embedded_models_draft_gives_the_greedy_text(embedded: Playground, chat: bool) -> None:
    prompt: Any = "Once upon a time"
    if chat:
        prompt = [{"role": "user", "content": "Why is the sky blue?"}]
    greedy, trace = embedded.compare(prompt, ["greedy", "speculative"], max_new_tokens=16)
    assert (trace.text, trace.stop) == (greedy.text, greedy.stop)
    assert trace.settings["assistant_model"] == "smollm2-draft"
    assert_counts(trace, recounted(trace))


def test_the_embedded_models_exits_give_the_greedy_text_in_fewer_passes(
    embedded: Playground,
) -> None:
    prompt = [{"role": "user", "content": "Why is the sky blue?"}]
    ways = [("early_exit", {"assistant_early_exit": layers}) for layers in (2, 4, 8)]
    choices = ["greedy", *ways, ("early_exit", {"assistant_early_exit": 2, "trained_exit": False})]
    greedy, *exits, own = embedded.compare(prompt, choices, max_new_tokens=24)
    assert trained.exit_layers(embedded.model) == [2, 4, 8]
    for trace in (*exits, own):
        assert (trace.text, trace.stop) == (greedy.text, greedy.stop)
        assert_counts(trace, recounted(trace))
    # About half of a trained exit's drafts are accepted, with the model's own norm none.
    most = 2 * fates(own)["accepted"] + 4
    assert all(fates(trace)["accepted"] > most for trace in exits)


def test_the_embedded_models_draft_drafts_for_others_too() -> None:
    draft = models.load("smollm2-draft", device="cpu")
    assert draft.name == "smollm2-draft" and trained.target_of(draft) == "smollm2"
    greedy, trace = compare(
        Playground(tiny("gpt2")), "greedy", ("speculative", {"assistant_model": draft})
    )
    assert trace.draft_passes > 0 and trace.text == greedy.text


# Independent counts


def recounted(trace: Trace) -> dict[int, tuple[int, int]]:
    """Drafted and accepted tokens of each round, from the tree and the returned text only."""
    path = set(trace.sequences[0].steps)
    rounds: dict[int, list[bool]] = defaultdict(list)
    for step in trace.steps:
        if "p" in step.notes:  # a verified draft
            rounds[step.notes["round"]].append(step.id in path)
    return {number: (len(kept), sum(kept)) for number, kept in rounds.items()}


def assert_counts(trace: Trace, again: dict[int, tuple[int, int]]) -> None:
    """Assert that the trace's verdicts agree with a recount."""
    verdicts, drafted, kept = fates(trace), *map(sum, zip(*again.values(), strict=True))
    assert verdicts["accepted"] == kept
    assert verdicts["accepted"] + verdicts["rejected"] + verdicts["ignored"] == drafted
    closing = verdicts["bonus"] + verdicts["resampled"] + verdicts["chosen"]
    assert kept + closing == len(trace.sequences[0].token_ids)
    # One pass of the model verifies a round: it evaluates the drafts and, after the first round,
    # the final token of the round before.
    read = sum(tick.nodes for tick in trace.ticks[1:] if tick.forward_passes)
    assert read == drafted + max(step.notes["round"] for step in trace.steps) - 1


def counted_without_engine(
    target: Model, draft: Model, ids: list[int], length: int
) -> dict[int, tuple[int, int]]:
    """The same without the engine, by whole forward passes of both models."""

    @torch.no_grad()
    def best(model: Model, text: list[int]) -> int:
        return int(model.module(torch.tensor([text])).logits[0, -1].argmax())

    end, rounds, text = len(ids) + length, {}, list(ids)
    while len(text) < end:
        drafted: list[int] = []
        while len(drafted) < min(3, end - len(text) - 1):
            drafted.append(best(draft, [*text, *drafted]))
        own = [best(target, text + drafted[:at]) for at in range(len(drafted) + 1)]
        pairs = zip(drafted, own, strict=False)
        kept = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        if drafted:
            rounds[len(rounds) + 1] = (len(drafted), kept)
        text += own[: kept + 1]
    return rounds


@pytest.mark.parametrize("strategy", ["speculative", "early_exit"])
def test_acceptance_equals_that_of_separate_runs_of_both_models(
    lab: Playground, strategy: str
) -> None:
    way = {**SURE, "num_assistant_tokens": 3, "eos_token_id": None}
    [trace] = compare(lab, (strategy, way), max_new_tokens=40)
    assert len(trace.sequences[0].token_ids) == 40
    ids = [token.id for token in trace.prompt_tokens]
    draft = trained.draft(lab.model)
    if strategy == "early_exit":
        early = first_layers(lab.model.module, 1, trained.exits(lab.model)[1])
        draft = replace(lab.model, module=early)
    expected = counted_without_engine(lab.model, draft, ids, 40)
    assert recounted(trace) == expected
    assert_counts(trace, expected)
    assert sum(kept for _, kept in expected.values()) > 0
