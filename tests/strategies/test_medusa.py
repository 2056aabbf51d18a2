"""Medusa: texts equal those without drafts, and every drafted token is recorded."""

import logging
import math
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.drafting import draft_tree
from engine.drafting.draft_tree import DraftTree, TreeDrafter
from engine.drafting.heads import Heads
from engine.drafting.tree_size import TreeSize
from engine.models.model import Model
from engine.trace import Step, Trace, deferred_writer
from playground import Limits, Playground, PlaygroundError
from tests.draft_models import readable, train
from tests.heads import bigram_model, exact_heads, random_heads
from tests.tiny import SIZE, tiny

PROMPT = "Hello there, hello"
DRAFTED, OWN = ("accepted", "rejected", "ignored"), ("chosen", "resampled", "bonus")
MODELS_AND_HEADS: dict[str, tuple[Model, Heads]] = {
    "right": (bigram_model(), exact_heads(bigram_model())),
    "noisy": (bigram_model(), exact_heads(bigram_model(), noise=1.5)),
    "nearly right": (bigram_model(0.05), exact_heads(bigram_model(0.05))),
    "random": (bigram_model(), random_heads(bigram_model(), kept=100)),
}
SHARED: dict[str, dict[str, Any]] = {
    "nothing": {},
    "repetition": {"repetition_penalty": 1.4},
    "n-grams": {"no_repeat_ngram_size": 2},
    "end tokens": {"eos_token_id": [2, *range(60, 80)]},
    "no end": {"min_new_tokens": 12, "eos_token_id": [2, *range(60, 120)]},
    "watermark": {"watermarking_config": {"greenlist_ratio": 0.25, "bias": 2.5}},
}
SIZES: list[dict[str, Any]] = [
    {},
    {"medusa_tokens": 1},
    {"medusa_tokens": 40, "medusa_depth": 2},
    {"medusa_tokens": 63},
]


def compare(model: Model, heads: Heads, choices: list[Any], **shared: Any) -> list[Trace]:
    lab = Playground(model, heads=heads, limits=Limits(strategies=20))
    traces = lab.compare(PROMPT, choices, **{"max_new_tokens": 24, **shared})
    assert [trace.error for trace in traces] == [None] * len(choices)
    return traces


def fates(trace: Trace) -> Counter[str]:
    return Counter(step.notes["verdict"] for step in trace.steps)


def rounds(trace: Trace) -> list[list[Step]]:
    """The steps of each round, in order."""
    found = defaultdict(list)
    for step in trace.steps:
        found[step.notes["round"]].append(step)
    return list(found.values())


# The text


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("how", MODELS_AND_HEADS)
def test_trees_of_any_size_give_the_greedy_text(how: str, name: str) -> None:
    ways = [("medusa", size) for size in SIZES]
    greedy, *others = compare(*MODELS_AND_HEADS[how], ["greedy", *ways], **SHARED[name])
    for trace in others:
        assert trace.sequences[0].token_ids == greedy.sequences[0].token_ids
        assert (trace.text, trace.stop) == (greedy.text, greedy.stop)


@pytest.mark.parametrize(
    "kind", ["llama", "gpt2", "qwen3", "gemma2", "mistral-short-window", "mamba"]
)
def test_models_of_every_family_work_with_heads(kind: str) -> None:
    model = tiny(kind)
    greedy, trace, wide = compare(
        model, random_heads(model), ["greedy", "medusa", ("medusa", {"medusa_tokens": 30})]
    )
    assert trace.text == wide.text == greedy.text
    assert trace.forward_passes < 24 or not fates(trace)["accepted"]


def test_accurate_heads_save_forward_passes() -> None:
    few = ("medusa", {"medusa_tokens": 12, "medusa_threshold": 0.1})
    greedy, trace = compare(*MODELS_AND_HEADS["right"], ["greedy", few], suppress_tokens=[2])
    assert set(fates(trace)) == {"chosen", "accepted", "rejected", "bonus"}
    assert trace.forward_passes <= greedy.forward_passes / 2
    [wide] = compare(
        *MODELS_AND_HEADS["right"], [("medusa", {"medusa_tokens": 63})], suppress_tokens=[2]
    )
    assert wide.forward_passes < trace.forward_passes
    assert max(step.notes.get("depth", 0) for step in wide.steps) == 4


def test_a_less_probable_sibling_can_be_accepted() -> None:
    ways = [("medusa", {"medusa_tokens": 30}), ("medusa", {"medusa_tokens": 30, "do_sample": True})]
    for trace in compare(*MODELS_AND_HEADS["noisy"], ways, seed=3, suppress_tokens=[2]):
        first = {}
        for step in trace.steps:
            if step.notes["verdict"] in DRAFTED:
                first.setdefault((step.parent, step.notes["round"]), step.id)
        kept = [step.id for step in trace.steps if step.notes["verdict"] == "accepted"]
        assert set(kept) - set(first.values()) and set(kept) & set(first.values())


def test_max_new_tokens_is_exact() -> None:
    model, heads = MODELS_AND_HEADS["right"]
    [whole] = compare(model, heads, ["greedy"], suppress_tokens=[2])
    for length in range(1, 9):
        for size in SIZES[::2]:
            [trace] = compare(
                model, heads, [("medusa", size)], max_new_tokens=length, suppress_tokens=[2]
            )
            assert trace.sequences[0].token_ids == whole.sequences[0].token_ids[:length]
            assert trace.stop.rule == "length"


def test_a_text_may_end_in_the_middle_of_a_tree() -> None:
    model = readable()
    text = Playground(model).compare(PROMPT, ["greedy"], max_new_tokens=20)[0]
    ids, heads = text.sequences[0].token_ids, OracleDrafter(model, text)
    for ending in ({"stop_strings": text.text[3:6]}, {"eos_token_id": ids[5]}):
        lab = Playground(model)
        lab._drafts._trees = heads
        greedy, trace = lab.compare(PROMPT, ["greedy", "medusa"], max_new_tokens=20, **ending)
        assert 1 < len(greedy.sequences[0].token_ids) <= 6
        assert (trace.text, trace.stop) == (greedy.text, greedy.stop)
        last = trace.steps[trace.sequences[0].steps[-1]]
        assert (last.event, last.notes["verdict"]) == ("returned", "accepted")
        after = [step for step in trace.steps if step.parent == last.id]
        # Drafts stop at end tokens, but not at stop strings: what follows one is ignored.
        assert {step.notes["verdict"] for step in after} == (
            {"ignored"} if "stop_strings" in ending else set()
        )


class OracleDrafter(TreeDrafter):
    """Drafts the text that a model will write, with a wrong token beside every right one."""

    def __init__(self, model: Model, trace: Trace) -> None:
        super().__init__(random_heads(model, depth=6))
        self._ids = list(trace.sequences[0].token_ids)

    def tree(self, features: Any, token: int, ends: Any, size: TreeSize) -> DraftTree:
        at = self._ids.index(token) + 1
        tree = DraftTree([], [], [], [])
        above = -1
        for number, right in enumerate(self._ids[at : at + size.depth]):
            for drafted in (right - 1 if right > 10 else right + 1, right):
                tree.tokens.append(drafted)
                tree.parents.append(above)
                tree.log_probs.append(math.log(0.5))
                tree.depths.append(number + 1)
            above = len(tree.tokens) - 1
            if right in ends:
                break
        return tree


@pytest.mark.parametrize("top_k", [1, 0])
def test_sampling_equals_greedy_only_with_top_k_1(top_k: int) -> None:
    ways = [("medusa", {**size, "do_sample": True, "top_k": top_k}) for size in SIZES]
    greedy, *others = compare(*MODELS_AND_HEADS["noisy"], ["greedy", *ways], seed=5)
    for trace in others:
        assert (trace.text == greedy.text) is (top_k == 1)


def test_the_embedded_model_gives_its_greedy_text_with_any_heads(embedded: Playground) -> None:
    lab = Playground(embedded.model, heads=random_heads(embedded.model, depth=4, kept=4000))
    prompt = "Write: one, two, three, one, two, three, one"
    penalty = {"repetition_penalty": 1.2}
    ways = ["greedy", "medusa", ("greedy", penalty), ("medusa", {**penalty, "medusa_tokens": 20})]
    greedy, trace, strict, wide = lab.compare(prompt, ways, max_new_tokens=10)
    assert trace.sequences[0].token_ids == greedy.sequences[0].token_ids
    assert wide.sequences[0].token_ids == strict.sequences[0].token_ids
    assert wide.text != trace.text


# The record


@pytest.fixture(scope="module", params=[False, True], ids=["greedy", "sampled"])
def traces(request: pytest.FixtureRequest) -> list[Trace]:
    ways = [("medusa", {**size, "do_sample": request.param, "top_k": 0}) for size in SIZES]
    shared = {"max_new_tokens": 20, "seed": 2, "suppress_tokens": [2]}
    hows = (MODELS_AND_HEADS[how] for how in ("right", "noisy", "random"))
    return [trace for how in hows for trace in compare(*how, ways, **shared)]


def test_outcomes_of_drafted_trees_add_up(traces: list[Trace]) -> None:
    every: Counter[str] = Counter()
    for trace in traces:
        every += fates(trace)
        for number, steps in enumerate(rounds(trace), 1):
            *drafted, own = steps
            assert own.notes == {"round": number, "verdict": own.notes["verdict"]}
            assert {step.notes["verdict"] for step in drafted} <= set(DRAFTED)
            inside = [s for s in drafted if s.parent == own.parent]
            follows = ("resampled" if inside else "bonus") if drafted else "chosen"
            assert own.notes["verdict"] == follows
        written = sum(fates(trace)[fate] for fate in ("accepted", *OWN))
        assert written == len(trace.sequences[0].token_ids) == 20
    assert set(every) == {*DRAFTED, *OWN}


def test_every_drafted_token_follows_its_parent(traces: list[Trace]) -> None:
    for trace in traces:
        path = set(trace.sequences[0].steps)
        for of_round in rounds(trace):
            for step in of_round[:-1]:
                fate, above = step.notes["verdict"], step.parent
                assert above is not None
                inside = trace.steps[above].notes["round"] == step.notes["round"]
                depth = trace.steps[above].notes["depth"] if inside else 0
                assert step.notes["depth"] == depth + 1
                assert (fate == "accepted") is (step.id in path)
                assert (fate == "ignored") is (above not in path)
                event = {"ignored": "drafted"}.get(fate, fate)
                assert step.event == (
                    "returned" if step.id == trace.sequences[0].steps[-1] else event
                )
        assert Trace.from_json(trace.to_json()) == trace


def test_a_round_is_one_pass_over_the_tree_and_the_token_before_it(traces: list[Trace]) -> None:
    for number, trace in enumerate(traces):
        size = trace.settings["medusa_tokens"] or 12
        evaluated = [tick.nodes for tick in trace.ticks if tick.forward_passes]
        first = not number % len(SIZES)  # the first run of a comparison evaluates the prompt
        trees = [len(steps) for steps in rounds(trace)[1:]]  # drafted tokens and the final one
        assert evaluated[first:] == trees and max(trees) <= size + 1
        assert trace.forward_passes == len(trees) + first and trace.draft_passes == 0


def test_drafting_time_is_recorded_once_a_round(traces: list[Trace]) -> None:
    for trace in traces:
        for of_round in rounds(trace):
            timed = ["draft_ms" in step.notes for step in of_round]
            assert timed == [len(of_round) > 1] + [False] * (len(of_round) - 1)


def test_recorded_p_and_q_are_those_of_the_model_and_the_heads() -> None:
    model, heads = MODELS_AND_HEADS["noisy"]
    [trace] = compare(model, heads, [("medusa", {"medusa_tokens": 20})])
    ids = [token.id for token in trace.prompt_tokens]
    for step in trace.steps[:60]:
        if step.notes["verdict"] not in DRAFTED:
            continue
        above = [s.token.id for s in trace.path(step.parent)]
        text = torch.tensor([ids + above])
        with torch.inference_mode():
            p = model.module(text).logits[0, -1].softmax(-1)
            q = heads.logits(heads.state(0, torch.empty(0), torch.tensor(above[-1:]))).softmax(-1)[
                0
            ]
        token = step.token.id
        expected = (float(p[token]), float(q[token]))
        assert (step.notes["p"], step.notes["q"]) == pytest.approx(expected, rel=1e-3)
        if step.raw is not None:
            assert math.exp(step.raw) == pytest.approx(expected[0], rel=1e-3)


def test_deferred_writing_gives_the_same_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def steps() -> list[tuple[Any, ...]]:
        way = ("medusa", {"medusa_tokens": 20, "do_sample": True})
        [trace] = compare(*MODELS_AND_HEADS["noisy"], [way], seed=4)
        return [
            (step.parent, step.token, step.event, step.raw, step.rank, step.notes["verdict"])
            for step in trace.steps
        ]

    at_once = steps()
    monkeypatch.setattr(deferred_writer, "is_asynchronous", lambda device: True)
    assert steps() == at_once


def test_only_ignored_tokens_are_recorded_without_a_distribution(traces: list[Trace]) -> None:
    for trace in traces:
        for step in trace.steps:
            assert (step.distribution is None) is (step.notes["verdict"] == "ignored")
            assert (step.rank is None) is (step.notes["verdict"] == "ignored")


# The tree


def grown(heads: Heads, size: TreeSize, ends: tuple[int, ...] = ()) -> DraftTree:
    with torch.inference_mode():
        return TreeDrafter(heads).tree(torch.ones(1, 1, 32), 40, ends, size)


def test_a_tree_contains_the_most_probable_paths() -> None:
    heads = random_heads(tiny("llama"), depth=2, kept=12)
    with torch.inference_mode():
        state = heads.state(0, torch.ones(1, 1, 32), torch.tensor([40]))
        first = heads.logits(state)[0].log_softmax(-1)
        states = heads.state(1, state.expand(12, -1), heads.kept)
        second = first[:, None] + heads.logits(states).log_softmax(-1)
    ways = {(int(token),): float(first[at]) for at, token in enumerate(heads.kept)}
    for one, two in torch.cartesian_prod(torch.arange(12), torch.arange(12)).tolist():
        ways[int(heads.kept[one]), int(heads.kept[two])] = float(second[one, two])
    best = sorted(ways, key=lambda way: -ways[way])[:24]

    tree = grown(heads, TreeSize(24, 2))
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    assert paths == best
    assert tree.depths == [len(path) for path in paths]
    above = [ways[path[:-1]] if len(path) > 1 else 0.0 for path in paths]
    own = [ways[path] - before for path, before in zip(paths, above, strict=True)]
    assert tree.log_probs == pytest.approx(own, abs=1e-4)


@pytest.mark.parametrize("size", [1, 2, 7, 64])
@pytest.mark.parametrize("depth", [1, 4])
def test_parents_come_before_children_and_siblings_differ(size: int, depth: int) -> None:
    tree = grown(random_heads(tiny("llama"), depth=4), TreeSize(size, depth))
    assert len(tree.tokens) == (size if depth > 1 else min(size, 16))
    assert all(parent < place for place, parent in enumerate(tree.parents))
    pairs = list(zip(tree.parents, tree.tokens, strict=True))
    assert len(set(pairs)) == len(pairs) and max(tree.depths) <= depth


def test_a_certain_token_comes_after_its_parent() -> None:
    heads = exact_heads(bigram_model(), depth=4)
    heads.noise = torch.zeros(len(heads.kept)).index_fill_(0, torch.tensor(50), 1e4)
    tree = grown(heads, TreeSize(12, 4))
    assert tree.tokens[:4] == [50] * 4 and tree.parents[:4] == [-1, 0, 1, 2]
    assert tree.log_probs[:4] == [0.0] * 4


def test_nothing_is_drafted_after_an_end_token() -> None:
    heads = random_heads(tiny("llama"), depth=3, kept=20)
    whole = grown(heads, TreeSize(30, 3))
    ends = tuple({whole.tokens[parent] for parent in whole.parents if parent >= 0})
    tree = grown(heads, TreeSize(30, 3), ends[:1])
    assert ends[0] in tree.tokens
    assert ends[0] not in {tree.tokens[parent] for parent in tree.parents if parent >= 0}
    alone = grown(heads, TreeSize(30, 3), tuple(heads.kept.tolist()))
    assert set(alone.depths) == {1}


@pytest.mark.parametrize(
    "size", [TreeSize(3, 5), TreeSize(12, 5), TreeSize(12, 5, 0.1), TreeSize(40, 5, 0.02)]
)
def test_pruning_on_a_cpu_gives_the_same_tree(
    size: TreeSize, monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = []

    class Counting(TreeDrafter):
        def __init__(self, heads: Heads) -> None:
            super().__init__(heads)
            state = heads.state
            monkeypatch.setattr(heads, "state", lambda *now: levels.append(now[0]) or state(*now))

    trees = Counting(exact_heads(bigram_model(), depth=5))
    given = (torch.ones(1, 32), 40, (2, 50), size)
    tree, needed = trees.tree(*given), len(levels)
    # With this threshold nothing is pruned, as on a GPU.
    monkeypatch.setattr("engine.drafting.draft_tree._threshold", lambda *_: -math.inf)
    assert trees.tree(*given) == tree
    assert len(levels) == needed + 5 and (needed < 5 or size.tokens == 40)


def test_a_threshold_drops_improbable_paths() -> None:
    heads = exact_heads(bigram_model())
    whole, likely = grown(heads, TreeSize(40, 4)), grown(heads, TreeSize(40, 4, 0.05))
    reached: list[float] = []
    for parent, log_prob in zip(whole.parents, whole.log_probs, strict=True):
        reached.append((reached[parent] if parent >= 0 else 0.0) + log_prob)
    kept = sum(math.exp(way) >= 0.05 for way in reached)
    assert 0 < kept < 40 and likely.tokens == whole.tokens[:kept]
    [none, some] = compare(
        bigram_model(), heads, [("medusa", {"medusa_threshold": at}) for at in (1.0, 0.3)]
    )
    assert set(fates(none)) == {"chosen"} and none.text == some.text
    for steps in rounds(some):
        for step in steps[:-1]:
            own = [s.notes["q"] for s in some.path(step.id) if s in steps]
            assert math.prod(own) >= 0.3


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stand-ins for the Triton kernels, for heads that claim to be on a GPU."""
    ours = SimpleNamespace(grown=draft_tree._grow)
    monkeypatch.setattr(draft_tree, "kernels", lambda name, there: ours if there else None)
    return ours


def on_a_gpu(heads: Heads, monkeypatch: pytest.MonkeyPatch) -> Heads:
    there = SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32, T=heads.output.T)
    monkeypatch.setitem(heads._buffers, "output", there)
    return heads


def test_only_plain_heads_on_a_gpu_use_triton_kernels(
    kernels: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels.grown = lambda *given: draft_tree._grow(*given)
    known, others = random_heads(tiny("llama")), exact_heads(bigram_model())
    assert draft_tree._grow_with(known) is draft_tree._grow
    assert draft_tree._grow_with(on_a_gpu(known, monkeypatch)) is kernels.grown
    assert draft_tree._grow_with(on_a_gpu(others, monkeypatch)) is draft_tree._grow


@pytest.mark.parametrize("wrong", ["fails", "is wrong"])
def test_kernels_that_differ_from_torch_are_not_used_and_a_warning_says_why(
    wrong: str,
    kernels: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def grown(*given: Any) -> torch.Tensor:
        if wrong == "fails":
            raise RuntimeError("an old card")
        return draft_tree._grow(*given) - 1

    kernels.grown = grown
    with caplog.at_level(logging.WARNING):
        way = draft_tree._grow_with(on_a_gpu(random_heads(tiny("llama")), monkeypatch))
    assert way is draft_tree._grow
    why = {"fails": "an old card", "is wrong": "a tree differs by 1 from torch"}[wrong]
    assert [record.message for record in caplog.records] == [
        f"drafts are made in torch, the Triton kernels failed: {why}"
    ]


# Invalid input


def test_trained_heads_of_a_model_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = bigram_model(0.1)
    train(model, tmp_path, monkeypatch)
    greedy, trace = Playground(model).compare(PROMPT, ["greedy", "medusa"], max_new_tokens=12)
    assert trace.text == greedy.text
    drafted = {step.token.id for step in trace.steps if step.notes["verdict"] in DRAFTED}
    assert drafted and min(drafted) >= SIZE - 150  # the only tokens that the heads score


def test_a_model_without_heads_is_rejected_by_name() -> None:
    with pytest.raises(PlaygroundError, match=r"draft heads, and llama has none; .* for smollm2"):
        Playground(tiny("llama")).compare(PROMPT, ["medusa"])


def test_medusa_rejects_encoder_decoder_models() -> None:
    with pytest.raises(PlaygroundError, match="medusa needs a decoder-only model"):
        Playground(tiny("t5")).compare(PROMPT, ["medusa"])


def test_more_tokens_than_the_limit_are_rejected() -> None:
    lab = Playground(
        tiny("llama"), heads=random_heads(tiny("llama")), limits=Limits(draft_tokens=20)
    )
    with pytest.raises(PlaygroundError, match="medusa_tokens is 21"):
        lab.compare(PROMPT, [("medusa", {"medusa_tokens": 21})])
    with pytest.raises(PlaygroundError, match="guidance_scale"):
        lab.compare(PROMPT, ["medusa"], guidance_scale=1.5)
