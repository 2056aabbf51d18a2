"""Speculative sampling follows the model's distribution, counted over all possible texts.

A real transformers model with eight tokens writes three of them, so that all 512 texts can be
enumerated. Through the engine, enough draws for the test would take hours. Here the strategy itself
runs, unchanged, on scores that the real models computed for each of the 73 prefixes.

A test fails if chi-square has a p-value below 1e-4: with random seeds, one test in 10,000 would
fail by chance. The seeds are fixed, so the results are reproducible. The power of the test is
tested as well: it detects a wrong acceptance rule with a twentieth of the draws.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import product
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
)

from engine.models.trained import ReducedVocabularyHead
from engine.run import Pick
from engine.trace import Stop
from playground import Limits, Playground
from strategies.prompt_lookup import Params as Lookup
from strategies.prompt_lookup import prompt_lookup
from strategies.speculative import Params, Verdict, accept, speculative
from tests.tiny import tiny

LETTERS = "abcdefgh"
TOKENS, LENGTH = len(LETTERS), 3
PROMPT = [1, 6, 3, 1, 4, 5, 0, 2, 7, 3, 1]  # contains every token
PROMPT_IDS = torch.tensor(PROMPT)
TEXTS = list(product(range(TOKENS), repeat=LENGTH))
DRAWS = 100_000
SIGNIFICANCE = 1e-4
END = Stop("length")
DRAFTING = {
    "do_sample": True,
    "num_assistant_tokens": 2,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.0,
}


@cache
def model(name: str) -> LlamaForCausalLM:
    """The target, or a draft model: similar (good), unrelated (bad), opposite (adversarial), or
    similar with a reduced vocabulary (few)."""
    torch.manual_seed(5 if name == "bad" else 1)
    module = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=TOKENS,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            initializer_range=0.35,
            max_position_embeddings=32,
            eos_token_id=None,
            bos_token_id=None,
        )
    )
    if name in ("good", "few"):
        for weights in module.parameters():
            weights.data += 0.02 * torch.randn_like(weights)
    if name == "adversarial":  # most probable where the target is least
        module.lm_head.weight.data *= -1
    if name == "few":
        module.lm_head = ReducedVocabularyHead(
            module.lm_head.weight.data, torch.tensor([6, 0, 3, 4])
        )
    return module.eval()


@cache
def table(name: str, *processors: Any) -> Tensor:
    """A model's scores after every prefix, in the row of the prefix's number."""
    rows = torch.zeros(2 * TOKENS ** (LENGTH - 1), TOKENS)
    for length in range(LENGTH):
        texts = list(product(range(TOKENS), repeat=length))
        ids = torch.tensor([[*PROMPT, *text] for text in texts])
        with torch.no_grad():
            scores = model(name)(ids).logits[:, -1]
        for processor in processors:
            scores = processor(ids, scores)
        rows[[number(text) for text in texts]] = scores
    return rows


def number(text: Sequence[int], start: int = 1) -> int:
    """Encode a text as a number: a leading 1, then a digit in base TOKENS for each token."""
    for token in text:
        start = start * TOKENS + token
    return start


class TableNode(NamedTuple):
    """A node: the name of a score table, and the number of a text."""

    scores: str
    text: int

    @property
    def ids(self) -> Tensor:
        """The prompt; strategies read this of the root only."""
        return PROMPT_IDS


@cache
def descendant(node: TableNode, *tokens: int) -> TableNode:
    """The node some tokens further."""
    return TableNode(node.scores, number(tokens, node.text))


class TableRun:
    """Stands in for `Run` without engine and trace: scores are looked up in tables, a step is the
    number of the text that it ends, and the step passed to `finish` is the drawn text.

    Tokens are drawn with the standard library: for so few, torch takes ten times as long."""

    def __init__(self, seed: int, **tables: Tensor) -> None:
        self.root = TableNode("target", 1)
        self.max_new_tokens = LENGTH
        self.end_tokens: set[int] = set()
        self.generator = torch.Generator().manual_seed(seed)
        self._random = Random(seed)
        self.draft = SimpleNamespace(
            start=[],
            cross_tokenizer=SimpleNamespace(needed=False),
            room=lambda text: LENGTH,
            continuation=lambda text: (TableNode("draft", 1), *text),
            hold=lambda nodes: None,
        )
        self._tables = tables
        self._known: dict[tuple[TableNode, ...], Tensor] = {}
        self._drawn = 0

    def scores(self, nodes: list[TableNode]) -> Tensor:
        key = tuple(nodes)
        if key not in self._known:
            rows = [self._tables[node.scores][node.text] for node in nodes]
            self._known[key] = torch.stack(rows)
        return self._known[key]

    def draw(self, probs: Tensor, at: object = ()) -> Tensor | int:
        if probs.dim() == 1:
            return self._sample(probs.tolist())
        return torch.tensor([[self._sample(row)] for row in probs.tolist()])

    def _sample(self, weights: list[float]) -> int:
        return self._random.choices(range(TOKENS), weights)[0]

    def stops(self, nodes: list[TableNode], tokens: list[int]) -> list[Stop | None]:
        return [
            END if node.text * TOKENS + token >= len(TEXTS) else None
            for node, token in zip(nodes, tokens, strict=True)
        ]

    def record(self, picks: list[Pick]) -> list[int]:
        return [pick.node.text * TOKENS + pick.token for pick in picks]

    def choose(self, node: TableNode, token: int, event: str, **notes: Any) -> int:
        return node.text * TOKENS + token

    def add_stage(self, node: TableNode, name: str, scores: Tensor) -> None: ...

    def show(self, tips: list[int]) -> None: ...

    def finish(self, ends: list[tuple[int, None, Stop]], stop: Stop) -> None:
        self._drawn = ends[0][0]

    @torch.inference_mode()
    def count_texts(self, decode: Callable[..., Any], params: Any, times: int) -> Tensor:
        """Run a strategy many times; returns how often it generated each of `TEXTS`."""
        counts = [0] * len(TEXTS)
        for _ in range(times):
            decoding, nodes = decode(self, params), None
            with suppress(StopIteration):
                while True:
                    nodes = [descendant(*continuation) for continuation in decoding.send(nodes)]
            counts[self._drawn - len(TEXTS)] += 1
        return torch.tensor(counts, dtype=torch.double)


def p_value(counts: Tensor, scores: Tensor) -> float:
    """The p-value of a chi-square test that texts were sampled from these scores.

    Texts with fewer than five expected draws are pooled, so that the statistic follows a chi-square
    distribution.
    """
    p = scores.double().softmax(-1)
    factors = [[p[number(text[:at]), text[at]] for at in range(LENGTH)] for text in TEXTS]
    expected = torch.tensor(factors).double().prod(-1) * counts.sum()
    assert expected.sum() == pytest.approx(counts.sum())
    assert counts[expected == 0].sum() == 0
    rare = expected < 5
    expected = torch.cat([expected[~rare], expected[rare].sum()[None]])
    counts = torch.cat([counts[~rare], counts[rare].sum()[None]])
    chi_square = ((counts - expected) ** 2 / expected)[expected > 0].sum()
    freedom = (expected > 0).sum() - 1
    return float(torch.special.gammaincc(freedom / 2.0, chi_square / 2))


def test_a_draft_model_with_few_tokens_keeps_the_models_distribution() -> None:
    assert table("few")[1].softmax(-1).count_nonzero() == 4
    run = TableRun(seed=3, target=table("target"), draft=table("few"))
    counts = run.count_texts(speculative, Params(**DRAFTING), DRAWS // 10)
    assert p_value(counts, table("target")) > SIGNIFICANCE


@pytest.mark.parametrize(
    ("draft", "draws"), [("good", DRAWS), ("bad", DRAWS // 5), ("adversarial", DRAWS // 5)]
)
def test_any_draft_model_keeps_the_models_distribution(draft: str, draws: int) -> None:
    run = TableRun(seed=3, target=table("target"), draft=table(draft))
    counts = run.count_texts(speculative, Params(**DRAFTING), draws)
    assert p_value(counts, table("target")) > SIGNIFICANCE


@pytest.mark.parametrize("draft", ["good", "bad"])
def test_with_temperature_and_top_k_the_distribution_stays_exact(
    draft: str,
) -> None:
    shaping = (TemperatureLogitsWarper(0.7), TopKLogitsWarper(5))
    target = table("target", *shaping)
    run = TableRun(seed=4, target=target, draft=table(draft, *shaping))
    counts = run.count_texts(speculative, Params(**DRAFTING), DRAWS // 10)
    assert p_value(counts, target) > SIGNIFICANCE
    assert (counts == 0).sum() >= 512 - 5**3


@pytest.mark.parametrize("size", [1, 3])
def test_copied_drafts_keep_the_models_distribution(size: int) -> None:
    params = Lookup(prompt_lookup_num_tokens=2, max_matching_ngram_size=size, do_sample=True)
    run = TableRun(seed=5, target=table("target"))
    assert (
        p_value(run.count_texts(prompt_lookup, params, DRAWS // 5), table("target")) > SIGNIFICANCE
    )


def accept_all(run: Any, drafted: list[int], p: Tensor, q: Tensor, nodes: Any) -> Verdict:
    """Wrong: accepts every draft."""
    token = int(run.draw(p[-1]))
    return Verdict(range(len(drafted)), token, [0.0] * len(drafted))


def resample_from_p(run: Any, drafted: list[int], p: Tensor, q: Tensor, nodes: Any) -> Verdict:
    """Wrong: resamples a rejected token from p instead of the residual."""
    verdict = accept(run, drafted, p, q, nodes)
    again = int(run.draw(p[len(verdict.accepted)]))
    return verdict if verdict.residual is None else verdict._replace(token=again)


def verify_with_next_position(
    run: Any, drafted: list[int], p: Tensor, q: Tensor, nodes: Any
) -> Verdict:
    """Wrong: off by one, every token is verified with the next position's probabilities."""
    return accept(run, drafted, torch.cat([p[1:], p[-1:]]), q, nodes)


@pytest.mark.parametrize("draft", ["good", "bad"])
@pytest.mark.parametrize("wrong", [accept_all, resample_from_p, verify_with_next_position])
def test_a_wrong_rule_is_detected_with_a_twentieth_of_the_draws(
    draft: str, wrong: Callable[..., Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strategies.speculative.accept", wrong)
    run = TableRun(seed=3, target=table("target"), draft=table(draft))
    counts = run.count_texts(speculative, Params(**DRAFTING), DRAWS // 20)
    assert p_value(counts, table("target")) < SIGNIFICANCE / 1e6


def test_the_whole_engine_samples_from_the_models_distribution() -> None:
    letters = Tokenizer(models.WordLevel({letter: at for at, letter in enumerate(LETTERS)}))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    letters.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters)
    target, draft = (
        replace(tiny("llama"), name=name, module=model(name), tokenizer=tokenizer)
        for name in ("target", "bad")
    )
    lab = Playground(target, limits=Limits(strategies=500))
    prompt = "".join(LETTERS[token] for token in PROMPT)
    settings = {**DRAFTING, "assistant_model": draft, "top_k": 0}
    counts = torch.zeros(len(TEXTS), dtype=torch.double)
    for start in range(0, 3_000, 500):
        choices = [("speculative", {**settings, "seed": start + seed}) for seed in range(500)]
        for trace in lab.compare(prompt, choices, max_new_tokens=LENGTH):
            assert [token.id for token in trace.prompt_tokens] == PROMPT
            counts[TEXTS.index(trace.sequences[0].token_ids)] += 1
    assert p_value(counts, table("target")) > SIGNIFICANCE
