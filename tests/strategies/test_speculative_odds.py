"""Speculative sampling follows the model's distribution, counted over all possible texts.

A real transformers model with eight tokens writes three of them, so that all 512 texts can be
enumerated. The engine would take hours for the draws a distribution is judged by; here the strategy
itself runs, unchanged, over scores that the real models gave for each of the 73 beginnings.

A test fails where chi-square has a p-value below 1e-4: with a seed of its own, one test in 10,000
would though nothing is wrong. The seeds are fixed, so what passes once passes always. What the
statistic can see is tested as well: it finds a wrong rule with a twentieth of the draws.
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
PROMPT = [1, 6, 3, 1, 4, 5, 0, 2, 7, 3, 1]  # every token has come before
BEGINNING = torch.tensor(PROMPT)
TEXTS = list(product(range(TOKENS), repeat=LENGTH))
DRAWS = 100_000
ALARM = 1e-4
END = Stop("length")
DRAFTING = {
    "do_sample": True,
    "num_assistant_tokens": 2,
    "num_assistant_tokens_schedule": "constant",
    "assistant_confidence_threshold": 0.0,
}


@cache
def model(name: str) -> LlamaForCausalLM:
    """The target, or a draft model: much like it, nothing like it, its opposite, or like it where
    it scores a token at all."""
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
    if name == "adversarial":  # its mass is where the target has least
        module.lm_head.weight.data *= -1
    if name == "few":
        module.lm_head = ReducedVocabularyHead(
            module.lm_head.weight.data, torch.tensor([6, 0, 3, 4])
        )
    return module.eval()


@cache
def table(name: str, *processors: Any) -> Tensor:
    """A model's scores behind every beginning, in the row of that text's number."""
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
    """A text as a number with a digit for each token, behind a 1 that tells how long it is."""
    for token in text:
        start = start * TOKENS + token
    return start


class At(NamedTuple):
    """A node: whose scores, behind which text."""

    scores: str
    text: int

    @property
    def ids(self) -> Tensor:
        """What a strategy asks of the root alone."""
        return BEGINNING


@cache
def below(node: At, *tokens: int) -> At:
    """The node that some tokens lead to."""
    return At(node.scores, number(tokens, node.text))


class Lean:
    """What strategies need of `Run`, without engine and trace: scores are looked up, a step is the
    number of the text that it ends, and the step that is returned at last is what was drawn.

    Tokens are drawn by the standard library: of so few, torch takes ten times as long."""

    def __init__(self, seed: int, **tables: Tensor) -> None:
        self.root = At("target", 1)
        self.max_new_tokens = LENGTH
        self.end_tokens: set[int] = set()
        self.generator = torch.Generator().manual_seed(seed)
        self._chance = Random(seed)
        self.draft = SimpleNamespace(
            start=[],
            cross_tokenizer=SimpleNamespace(needed=False),
            room=lambda text: LENGTH,
            continuation=lambda text: (At("draft", 1), *text),
            hold=lambda nodes: None,
        )
        self._tables = tables
        self._known: dict[tuple[At, ...], Tensor] = {}
        self._drawn = 0

    def scores(self, nodes: list[At]) -> Tensor:
        key = tuple(nodes)
        if key not in self._known:
            rows = [self._tables[node.scores][node.text] for node in nodes]
            self._known[key] = torch.stack(rows)
        return self._known[key]

    def draw(self, probs: Tensor, at: object = ()) -> Tensor | int:
        if probs.dim() == 1:
            return self._one_of(probs.tolist())
        return torch.tensor([[self._one_of(row)] for row in probs.tolist()])

    def _one_of(self, weights: list[float]) -> int:
        return self._chance.choices(range(TOKENS), weights)[0]

    def stops(self, nodes: list[At], tokens: list[int]) -> list[Stop | None]:
        return [
            END if node.text * TOKENS + token >= len(TEXTS) else None
            for node, token in zip(nodes, tokens, strict=True)
        ]

    def record(self, picks: list[Pick]) -> list[int]:
        return [pick.node.text * TOKENS + pick.token for pick in picks]

    def choose(self, node: At, token: int, event: str, **notes: Any) -> int:
        return node.text * TOKENS + token

    def add_stage(self, node: At, name: str, scores: Tensor) -> None: ...

    def show(self, tips: list[int]) -> None: ...

    def finish(self, ends: list[tuple[int, None, Stop]], stop: Stop) -> None:
        self._drawn = ends[0][0]

    @torch.inference_mode()
    def written(self, decode: Callable[..., Any], params: Any, times: int) -> Tensor:
        """Let a strategy write; gives how often each of `TEXTS` was drawn."""
        counts = [0] * len(TEXTS)
        for _ in range(times):
            decoding, nodes = decode(self, params), None
            with suppress(StopIteration):
                while True:
                    nodes = [below(*ask) for ask in decoding.send(nodes)]
            counts[self._drawn - len(TEXTS)] += 1
        return torch.tensor(counts, dtype=torch.double)


def p_value(counts: Tensor, scores: Tensor) -> float:
    """How probable a chi-square at least this large is, were texts drawn from these scores.

    Texts that fewer than five draws are expected of count as one: the statistic is not
    chi-square-distributed else.
    """
    p = scores.double().softmax(-1)
    ways = [[p[number(text[:at]), text[at]] for at in range(LENGTH)] for text in TEXTS]
    expected = torch.tensor(ways).double().prod(-1) * counts.sum()
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
    run = Lean(seed=3, target=table("target"), draft=table("few"))
    counts = run.written(speculative, Params(**DRAFTING), DRAWS // 10)
    assert p_value(counts, table("target")) > ALARM


@pytest.mark.parametrize(
    ("draft", "draws"), [("good", DRAWS), ("bad", DRAWS // 5), ("adversarial", DRAWS // 5)]
)
def test_any_draft_model_keeps_the_models_distribution(draft: str, draws: int) -> None:
    run = Lean(seed=3, target=table("target"), draft=table(draft))
    counts = run.written(speculative, Params(**DRAFTING), draws)
    assert p_value(counts, table("target")) > ALARM


@pytest.mark.parametrize("draft", ["good", "bad"])
def test_with_temperature_and_top_k_the_distribution_stays_exact(
    draft: str,
) -> None:
    shaping = (TemperatureLogitsWarper(0.7), TopKLogitsWarper(5))
    target = table("target", *shaping)
    run = Lean(seed=4, target=target, draft=table(draft, *shaping))
    counts = run.written(speculative, Params(**DRAFTING), DRAWS // 10)
    assert p_value(counts, target) > ALARM
    assert (counts == 0).sum() >= 512 - 5**3


@pytest.mark.parametrize("size", [1, 3])
def test_copied_drafts_keep_the_models_distribution(size: int) -> None:
    params = Lookup(prompt_lookup_num_tokens=2, max_matching_ngram_size=size, do_sample=True)
    run = Lean(seed=5, target=table("target"))
    assert p_value(run.written(prompt_lookup, params, DRAWS // 5), table("target")) > ALARM


def accept_all(run: Any, drafted: list[int], p: Tensor, q: Tensor, nodes: Any) -> Verdict:
    """Wrong: keeps the draft whatever the model says."""
    token = int(run.draw(p[-1]))
    return Verdict(range(len(drafted)), token, [0.0] * len(drafted))


def forget_the_residual(run: Any, drafted: list[int], p: Tensor, q: Tensor, nodes: Any) -> Verdict:
    """Wrong: replaces a lost token from p instead of from the residual."""
    verdict = accept(run, drafted, p, q, nodes)
    again = int(run.draw(p[len(verdict.accepted)]))
    return verdict if verdict.residual is None else verdict._replace(token=again)


def judge_by_the_next_place(
    run: Any, drafted: list[int], p: Tensor, q: Tensor, nodes: Any
) -> Verdict:
    """Wrong: off by one, every token is weighed with the odds behind it."""
    return accept(run, drafted, torch.cat([p[1:], p[-1:]]), q, nodes)


@pytest.mark.parametrize("draft", ["good", "bad"])
@pytest.mark.parametrize("wrong", [accept_all, forget_the_residual, judge_by_the_next_place])
def test_a_wrong_rule_is_detected_with_a_twentieth_of_the_draws(
    draft: str, wrong: Callable[..., Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strategies.speculative.accept", wrong)
    run = Lean(seed=3, target=table("target"), draft=table(draft))
    counts = run.written(speculative, Params(**DRAFTING), DRAWS // 20)
    assert p_value(counts, table("target")) < ALARM / 1e6


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
    assert p_value(counts, table("target")) > ALARM
