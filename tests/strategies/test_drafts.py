"""Where drafts come from: another model, the model's first layers, the text itself."""

import threading
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
import torch

from engine.trace import Trace
from engine.trie.early_exit import first_layers
from playground import Playground, PlaygroundError
from strategies.prompt_lookup import Match, find_match
from tests.draft_models import deep, draft, padded, readable
from tests.tiny import SIZE, TRIE, tiny

PROMPT = "one two, one two, one"
SURE = {"assistant_confidence_threshold": 0.0}
SYNTHID = {"ngram_len": 3, "keys": [1, 2, 3], "sampling_table_size": 256}


def run(model: Any, *choices: Any, **shared: Any) -> list[Trace]:
    traces = Playground(model).compare(PROMPT, list(choices), **{"max_new_tokens": 24, **shared})
    assert [trace.error for trace in traces] == [None] * len(choices)
    return traces


def rounds(trace: Trace) -> list[list[dict[str, Any]]]:
    """The notes of the drafted tokens of each round, in the order of the text."""
    found = defaultdict(list)
    for step in sorted(trace.steps, key=lambda step: len(trace.path(step.id))):
        if step.notes["verdict"] in ("accepted", "rejected", "ignored"):
            found[step.notes["round"]].append(dict(step.notes))
    return list(found.values())


def outcomes(trace: Trace) -> list[tuple[int, int | None, str]]:
    """Every token, its parent, and its event."""
    return [(step.token.id, step.parent, step.notes["verdict"]) for step in trace.steps]


def kept_all(notes_of_round: list[dict[str, Any]]) -> bool:
    return all(notes["verdict"] == "accepted" for notes in notes_of_round)


# Draft models


def test_the_heuristic_schedule_drafts_two_more_after_success_and_one_less_otherwise() -> None:
    settings = {**SURE, "num_assistant_tokens": 2, "assistant_model": draft("llama", "good")}
    ways = [{"num_assistant_tokens_schedule": name} for name in ("constant", "heuristic")]
    same, varied = run(
        tiny("llama"), *(("speculative", {**settings, **way}) for way in ways), max_new_tokens=60
    )
    assert {len(notes_of_round) for notes_of_round in rounds(same)[:-3]} == {2}
    expected, success = 2, set()
    for notes_of_round in rounds(varied)[:-3]:  # the last ones may be cut by the length limit
        assert len(notes_of_round) == expected
        success.add(kept_all(notes_of_round))
        expected = expected + 2 if kept_all(notes_of_round) else max(1, expected - 1)
    assert success == {True, False}


@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
def test_a_draft_ends_with_the_first_token_below_the_confidence_threshold(threshold: float) -> None:
    settings = {"assistant_confidence_threshold": threshold, "num_assistant_tokens": 6}
    ways = [("speculative", settings), ("early_exit", settings)]
    for trace in run(tiny("gpt2"), *ways, max_new_tokens=60):
        for notes_of_round in rounds(trace)[:-6]:
            assert all(notes["q"] >= threshold for notes in notes_of_round[:-1])
            assert len(notes_of_round) == 6 or notes_of_round[-1]["q"] < threshold
    lengths = {len(notes_of_round) for notes_of_round in rounds(trace)[:-6]}
    assert (lengths == {1}) is (threshold == 1.0) and (lengths == {6}) is (threshold == 0.0)


@pytest.mark.parametrize("do_sample", [False, True])
def test_vocabularies_padded_to_different_sizes_work_together(do_sample: bool) -> None:
    way = {**SURE, "do_sample": do_sample, "top_k": 0}
    run(tiny("llama"), ("speculative", {**way, "assistant_model": padded(40)}))
    greedy, trace = run(
        padded(40), "greedy", ("speculative", {**way, "assistant_model": tiny("llama")})
    )
    # The target generates tokens outside the draft's vocabulary; after one, nothing is drafted.
    outside = [at for at, id in enumerate(trace.sequences[0].token_ids) if id >= SIZE]
    assert outside and trace.draft_passes > 0
    assert (trace.sequences[0].token_ids == greedy.sequences[0].token_ids) is not do_sample


def test_draft_models_with_equal_names_are_kept_apart() -> None:
    lab = Playground(tiny("llama"))
    hows = ("good", "bad", "adversarial", "good")
    ways = [("speculative", {**SURE, "assistant_model": draft("llama", how)}) for how in hows]
    alone = [outcomes(lab.compare(PROMPT, [way], max_new_tokens=12)[0]) for way in ways]
    together = lab.compare(PROMPT, ways, max_new_tokens=12)
    assert [outcomes(trace) for trace in together] == alone
    assert alone[0] == alone[3] != alone[1] != alone[2]
    twins = [replace(draft("llama", how), name="twin") for how in ("good", "bad")]
    ways = [("speculative", {**SURE, "assistant_model": twin}) for twin in twins]
    both = lab.compare(PROMPT, ways, max_new_tokens=12)
    assert [outcomes(trace) for trace in both] == alone[:2]


# The model's first layers


@pytest.mark.parametrize("kind", TRIE)
def test_an_early_exit_applies_the_last_norm_and_head_to_a_layers_states(kind: str) -> None:
    model = tiny(kind).module
    ids = torch.tensor([[5, 9, 7, 40, 41]])
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    with torch.no_grad():
        whole = model(ids, output_hidden_states=True)
        early = first_layers(model, 1)(ids, use_cache=False).logits
        base = model.base_model
        state = (base.ln_f if kind == "gpt2" else base.norm)(whole.hidden_states[1])
        logits = model.lm_head(state)
        if cap := getattr(model.config, "final_logit_softcapping", None):
            logits = cap * torch.tanh(logits / cap)
        assert torch.allclose(early, logits, atol=1e-4)
        assert torch.equal(model(ids).logits, whole.logits)
    assert all(torch.equal(before[name], now) for name, now in model.state_dict().items())
    assert model.config.num_hidden_layers == 2


@pytest.mark.parametrize("layers", [1, 2, 4, 5, None])
def test_early_exits_of_several_depths_run_together(layers: int | None) -> None:
    model = deep(6)
    exit = ("early_exit", {**SURE, "assistant_early_exit": layers, "num_assistant_tokens": 4})
    beam, penalty = ("beam_search", {"num_beams": 3}), ("contrastive_search", {"top_k": 3})
    choices = [exit, "greedy", beam, penalty, "dola"]
    together = run(model, *choices)
    for choice, trace in zip(choices, together, strict=True):
        [alone] = run(model, choice)
        assert trace.sequences[0].token_ids == alone.sequences[0].token_ids
        for ours, theirs in zip(trace.steps, alone.steps, strict=True):
            assert (ours.token, ours.parent, ours.event) == (
                theirs.token,
                theirs.parent,
                theirs.event,
            )
            assert ours.raw == pytest.approx(theirs.raw, abs=1e-3)
    assert together[0].sequences[0].token_ids == together[1].sequences[0].token_ids
    assert together[0].draft_passes > 0


def test_half_of_the_layers_draft_unless_a_number_is_given() -> None:
    default, three, five = run(
        deep(6), *(("early_exit", {"assistant_early_exit": layers}) for layers in (None, 3, 5))
    )
    assert outcomes(default) == outcomes(three) != outcomes(five)


@pytest.mark.parametrize("layers", [0, 2, 7])
@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_more_layers_than_the_model_has_are_rejected(kind: str, layers: int) -> None:
    with pytest.raises(PlaygroundError, match=f"assistant_early_exit is {layers}"):
        run(tiny(kind), ("early_exit", {"assistant_early_exit": layers}))


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_early_exit_rejects_encoder_decoder_models(kind: str) -> None:
    with pytest.raises(PlaygroundError, match="early_exit needs a decoder-only model"):
        run(tiny(kind), "early_exit")
    with pytest.raises(PlaygroundError, match="assistant_early_exit"):
        first_layers(tiny(kind).module, 1)


# The text itself


@pytest.mark.parametrize(
    ("text", "longest", "found"),
    [
        ([1, 2, 3, 9, 1, 2, 3], 3, Match(3, 3)),  # the longest allowed
        ([1, 2, 3, 9, 1, 2, 3], 2, Match(3, 2)),
        ([1, 2, 3, 9, 1, 2, 3], 16, Match(3, 3)),
        ([5, 3, 8, 2, 3], 2, Match(2, 1)),  # a shorter one, if the longest does not occur
        ([3, 7, 3, 8, 3], 1, Match(1, 1)),  # the first of several matches
        ([4, 4, 4], 2, Match(2, 2)),  # a match may overlap the end of the text
        ([1, 2, 3], 2, None),
        ([1], 2, None),
        ([], 2, None),
    ],
)
def test_the_longest_matching_ngram_is_found(
    text: list[int], longest: int, found: Match | None
) -> None:
    assert find_match(text, longest) == found


@pytest.mark.parametrize("kind", ["gemma2", "gpt2", "bart"])
def test_copied_tokens_record_their_source(kind: str) -> None:
    [trace] = run(tiny(kind), ("prompt_lookup", {"max_matching_ngram_size": 3}), max_new_tokens=40)
    start = [2] if kind == "bart" else [token.id for token in trace.prompt_tokens]
    text = start + list(trace.sequences[0].token_ids)
    verdicts = set()
    for step in trace.steps:
        if "copied_from" in step.notes:
            above = start + [parent.token.id for parent in trace.path(step.parent)]
            depth = [s.notes["round"] for s in trace.path(step.id)].count(step.notes["round"]) - 1
            end = above[: len(above) - depth]  # the text at the time of the lookup
            origin = step.notes["copied_from"]
            assert end[origin] == step.token.id
            matched, first = step.notes["matched"], origin - depth
            assert end[first - matched : first] == end[-matched:]
            verdicts.add(step.notes["verdict"])
    assert verdicts and len(text) == len(start) + 40


# Invalid input


@pytest.mark.parametrize("id", ["speculative", "prompt_lookup", "early_exit"])
@pytest.mark.parametrize(
    ("name", "value"), [("guidance_scale", 1.5), ("watermarking_config", SYNTHID)]
)
def test_stateful_processors_are_rejected_by_name(id: str, name: str, value: Any) -> None:
    with pytest.raises(PlaygroundError, match=name):
        run(tiny("llama"), id, **{name: value})


def test_a_server_allows_the_drafts_it_lists() -> None:
    lab = Playground(tiny("llama"), drafts=["stories15m"])
    with pytest.raises(PlaygroundError, match="'smollm2'; this server allows stories15m"):
        lab.compare(PROMPT, [("speculative", {"assistant_model": "smollm2"})])
    with pytest.raises(PlaygroundError, match="did you mean 'stories15m'"):
        lab.compare(PROMPT, [("universal_speculative", {"assistant_model": "stories15"})])
    with pytest.raises(PlaygroundError, match="allows none"):
        Playground(tiny("llama"), drafts=[]).compare(PROMPT, ["universal_speculative"])


def test_an_unknown_draft_model_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(PlaygroundError, match="did you mean 'stories15m'"):
        run(tiny("llama"), ("speculative", {"assistant_model": "storys15m"}))
    with pytest.raises(PlaygroundError, match="assistant_model"):
        run(tiny("llama"), ("speculative", {"assistant_modl": "stories15m"}))


def test_a_draft_model_drafts_up_to_its_context_length() -> None:
    long = "x" * 300
    with pytest.raises(PlaygroundError, match="attend to 256 tokens, and the prompt has 300"):
        Playground(tiny("mamba")).compare(
            long, [("speculative", {"assistant_model": tiny("gpt2")})], max_new_tokens=4
        )
    greedy, trace = Playground(tiny("mamba")).compare(
        long[:250],
        ["greedy", ("speculative", {**SURE, "assistant_model": tiny("gpt2")})],
        max_new_tokens=12,
    )
    assert trace.error is None and trace.sequences[0].token_ids == greedy.sequences[0].token_ids
    late = [step for step in trace.steps if len(trace.path(step.id)) > 7]
    assert late and {step.notes["verdict"] for step in late} == {"chosen"}
    assert trace.draft_passes > 0


def test_incompatible_draft_models_are_rejected() -> None:
    with pytest.raises(PlaygroundError, match="assistant_model"):
        run(tiny("llama"), ("speculative", {"assistant_model": tiny("t5")}))
    with pytest.raises(PlaygroundError, match="assistant_model"):
        run(tiny("t5"), ("speculative", {"assistant_model": tiny("llama")}))
    other_vocabulary = replace(tiny("t5"), name="foreign", tokenizer=readable(True).tokenizer)
    with pytest.raises(PlaygroundError, match="draft model with its own vocabulary"):
        run(tiny("t5"), ("speculative", {"assistant_model": other_vocabulary}))


def test_a_stopped_run_does_not_return_unverified_drafts() -> None:
    lab, stop = Playground(tiny("llama")), threading.Event()
    settings = {"num_assistant_tokens": 12, **SURE}
    for update in lab.stream(PROMPT, [("speculative", settings)], max_new_tokens=24, stop=stop):
        if sum(step.event == "drafted" for step in update.steps) and update.trace is None:
            stop.set()  # in the middle of a draft
    assert update.trace is not None and update.trace.stop.rule == "cancelled"
    returned = [step for sequence in update.trace.sequences for step in sequence.steps]
    assert all(update.trace.steps[step].event != "drafted" for step in returned)


def test_every_token_of_a_chain_is_counted() -> None:
    settings = {"num_assistant_tokens": 4, **SURE}
    shared_settings = {"max_new_tokens": 11, "suppress_tokens": [2]}  # no end token
    [trace] = run(tiny("llama"), ("speculative", settings), **shared_settings)
    drafted = sum(step.notes["verdict"] in ("accepted", "rejected") for step in trace.steps)
    assert drafted == 8 and trace.forward_passes == 1 + 3
    # Both models evaluate the prompt; the target also every token before the last, the draft model
    # every token before the last one it drafts.
    assert trace.nodes == 2 * len(PROMPT) + 10 + 8
