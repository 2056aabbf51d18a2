"""Custom decoding code: its arguments, what is captured of it, and errors."""

import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

from engine.trace import Trace
from playground import Playground, PlaygroundError
from playground.export.recipe import write
from tests.tiny import tiny


def with_processors(
    model: Any, input_ids: Tensor, logits_processor: Any, stopping_criteria: Any, **_: Any
) -> Tensor:
    """Runs the model on the whole text for every token, and calls the processors."""
    while not stopping_criteria(input_ids, None).all():
        scores = logits_processor(input_ids, model(input_ids).logits[:, -1])
        input_ids = torch.cat([input_ids, scores.argmax(-1, keepdim=True)], dim=-1)
    return input_ids


def with_a_cache(model: Any, input_ids: Tensor, stopping_criteria: Any, **_: Any) -> Tensor:
    """Calls the model, but no processor."""
    cache, new = DynamicCache(config=model.config), input_ids
    while not stopping_criteria(input_ids, None).all():
        new = model(new, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
        input_ids = torch.cat([input_ids, new], dim=-1)
    return input_ids


def without_model(model: Any, input_ids: Tensor, stopping_criteria: Any, **_: Any) -> Tensor:
    """Calls neither the model nor a processor."""
    while not stopping_criteria(input_ids, None).all():
        input_ids = torch.cat([input_ids, torch.full((1, 1), 7)], dim=-1)
    return input_ids


def with_an_encoder(
    model: Any,
    input_ids: Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    **given: Any,
) -> Tensor:
    encoded = {"encoder_outputs": given["encoder_outputs"]}
    while not stopping_criteria(input_ids, None).all():
        logits = model(**encoded, decoder_input_ids=input_ids).logits[:, -1]
        next_ids = logits_processor(input_ids, logits).argmax(-1, keepdim=True)
        input_ids = torch.cat([input_ids, next_ids], dim=-1)
    return input_ids


def run(kind: str, recipe: Any, arguments: dict[str, Any] | None = None, **shared: Any) -> Trace:
    settings = {"custom_generate": recipe, "arguments": arguments or {}}
    shared = {"max_new_tokens": 10, **shared}
    [trace] = Playground(tiny(kind)).compare("Hello", [("custom", settings)], **shared)
    return trace


def greedy(kind: str, **shared: Any) -> Trace:
    [trace] = Playground(tiny(kind)).compare("Hello", ["greedy"], max_new_tokens=10, **shared)
    return trace


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_calls_of_the_model_and_of_the_processors_are_captured(kind: str) -> None:
    ours, plain = (
        run(kind, with_processors, repetition_penalty=1.3),
        greedy(kind, repetition_penalty=1.3),
    )
    assert ours.error is None and ours.sequences[0].token_ids == plain.sequences[0].token_ids
    assert ours.stop == plain.stop
    # The engine evaluates the prompt once, as for every strategy; the other passes are the code's.
    assert ours.forward_passes == 1 + 10 and ours.nodes == 5 + sum(range(5, 15))
    for seen, known in zip(ours.steps, plain.steps, strict=True):
        assert seen.notes["captured"] == "model and processors"
        assert seen.raw == pytest.approx(known.raw, abs=1e-4) and seen.rank == known.rank
        assert seen.final == pytest.approx(known.final, abs=1e-4)
        assert seen.distribution and known.distribution
        assert seen.distribution.processors == known.distribution.processors


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_forward_passes_are_captured_without_processors(kind: str) -> None:
    ours, plain = run(kind, with_a_cache), greedy(kind)
    assert ours.sequences[0].token_ids == plain.sequences[0].token_ids
    assert [step.notes["captured"] for step in ours.steps] == ["model"] * 10
    for seen, known in zip(ours.steps, plain.steps, strict=True):
        assert seen.raw == pytest.approx(known.raw, abs=1e-4)


def test_tokens_that_were_not_captured_are_recorded_as_such() -> None:
    trace = run("llama", without_model)
    assert trace.sequences[0].token_ids == (7,) * 10
    assert trace.stop.detail == "10 new tokens; 10 of 10 tokens not captured"
    for step in trace.steps:
        assert (step.raw, step.final, step.rank, step.distribution) == (None,) * 4
    assert Trace.from_json(trace.to_json()) == trace
    assert trace.forward_passes == 1  # the prompt


def around_the_hooks(
    model: Any, input_ids: Tensor, logits_processor: Any, stopping_criteria: Any, **_: Any
) -> Tensor:
    """Uses the model's parts, which no hook sees, flattens the logits, and calls processors."""
    while not stopping_criteria(input_ids, None).all():
        logits = model.lm_head(model.model(input_ids).last_hidden_state[:, -1]) / 100
        scores = logits_processor(input_ids, logits)
        input_ids = torch.cat([input_ids, scores.argmax(-1, keepdim=True)], dim=-1)
    return input_ids


def test_processor_inputs_are_not_recorded_as_the_models_logits() -> None:
    trace = run("llama", around_the_hooks, repetition_penalty=1.3)
    assert trace.error is None
    for step in trace.steps:
        assert step.notes["captured"] == "processors"
        assert (step.raw, step.rank, step.probability) == (None, None, None)
        given = step.distribution
        assert given is not None and given.processors == ("recipe", "repetition_penalty")
        assert (given.raw_entropy, given.raw_varentropy) == (None, None)
        assert given.final_entropy > 5.0 and given.kept == given.kept_after[0]
        assert given.cutoffs == (None, None)
        own = next(each for each in given.candidates if each.token == step.token)
        assert own.raw is None and len(own.stages) == 2 and own.stages[-1] == own.final
        assert step.used == pytest.approx(own.final, rel=1e-4)
    assert Trace.from_json(trace.to_json()) == trace


def test_custom_code_decodes_with_an_encoder() -> None:
    assert run("t5", with_an_encoder).sequences[0].token_ids == greedy("t5").sequences[0].token_ids


def test_custom_code_gets_its_own_arguments_and_those_of_transformers() -> None:
    got: dict[str, Any] = {}

    def curious(
        model: Any, input_ids: Tensor, generation_config: Any, flavour: str = "plain", **given: Any
    ) -> Tensor:
        got.update(given, flavour=flavour, length=generation_config.max_length)
        return torch.cat([input_ids, input_ids[:, :1]], dim=-1)

    trace = run("llama", curious, {"flavour": "sour"}, bad_words_ids=[[9]])
    assert trace.error is None and trace.stop.rule == "recipe"
    assert got["flavour"] == "sour" and got["length"] == len("Hello") + 10
    names = [type(processor).__name__ for processor in got["logits_processor"]]
    assert "NoBadWordsLogitsProcessor" in names


def test_several_sequences_and_their_scores_are_returned() -> None:
    def two(model: Any, input_ids: Tensor, **_: Any) -> Any:
        from transformers.generation.utils import GenerateBeamDecoderOnlyOutput

        rows = torch.cat([input_ids.repeat(2, 1), torch.tensor([[5, 2], [6, 8]])], dim=-1)
        return GenerateBeamDecoderOnlyOutput(
            sequences=rows, sequences_scores=torch.tensor([-1.0, -2.0])
        )

    trace = run("llama", two)
    assert [sequence.token_ids for sequence in trace.sequences] == [(5, 2), (6, 8)]
    assert [sequence.score for sequence in trace.sequences] == [-1.0, -2.0]
    assert [sequence.stop.rule for sequence in trace.sequences] == ["end_token", "recipe"]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_an_exported_recipe_gives_the_tokens_of_its_strategy(kind: str, tmp_path: Path) -> None:
    write("contrastive_search", tmp_path)
    settings = {"penalty_alpha": 0.6, "top_k": 4}
    ours = run(kind, str(tmp_path), settings)
    lab = Playground(tiny(kind))
    [plain] = lab.compare("Hello", [("contrastive_search", settings)], max_new_tokens=10)
    assert ours.sequences[0].token_ids == plain.sequences[0].token_ids
    assert all(step.distribution for step in ours.steps)


def folder(path: Path, code: str, requirements: str = "") -> str:
    (path / "custom_generate").mkdir()
    (path / "custom_generate" / "generate.py").write_text(code)
    if requirements:
        (path / "custom_generate" / "requirements.txt").write_text(requirements)
    return str(path)


def test_an_unmet_requirement_is_named_with_the_installed_version(tmp_path: Path) -> None:
    needs = "torch>=99\n# a remark\nno-such-package==1.0\ntransformers\n"
    trace = run("llama", folder(tmp_path, "generate = print", needs))
    assert trace.error is not None
    assert f"torch>=99 is required, but {metadata.version('torch')} is installed" in trace.error
    assert "no-such-package==1.0 is required, but no-such-package is not installed" in trace.error
    assert "transformers is" not in trace.error


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import nothing_like_it", "ModuleNotFoundError"),
        ("x = 1", "has no function generate"),
        ("def generate(model, **_): raise KeyError('oops')", "the recipe failed: KeyError: 'oops'"),
        ("def generate(model, **_): return 'a text'", "the recipe returned str"),
        ("def generate(model, input_ids, **_): return input_ids", "no new token"),
    ],
)
def test_an_error_in_custom_code_is_reported_and_other_runs_continue(
    code: str, words: str, tmp_path: Path
) -> None:
    lab = Playground(tiny("llama"))
    choices = [("custom", {"custom_generate": folder(tmp_path, code)}), "greedy"]
    broken, plain = lab.compare("Hello", choices, max_new_tokens=5)
    assert broken.error is not None and words in broken.error
    assert plain.error is None and len(plain.sequences[0].token_ids) == 5


def test_stopping_ends_custom_code() -> None:
    started, passes = threading.Event(), []

    def forever(model: Any, input_ids: Tensor, **_: Any) -> None:
        while True:
            model(input_ids)
            passes.append(1)
            started.set()

    stop = threading.Event()
    threading.Thread(target=lambda: (started.wait(), stop.set())).start()
    lab = Playground(tiny("llama"))
    [last] = [
        update.trace
        for update in lab.stream("Hello", [("custom", {"custom_generate": forever})], stop=stop)
        if update.trace
    ]
    assert last.stop.rule == "cancelled"
    while any(thread.name.startswith("recipe") for thread in threading.enumerate()):
        time.sleep(0.01)  # it ends at its next use of the model


def test_custom_code_runs_only_where_it_is_allowed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    recipe = folder(tmp_path, f"open({str(mark)!r}, 'w').close()\ndef generate(**_): pass")
    lab = Playground(tiny("llama"), allow_custom=False)
    with pytest.raises(PlaygroundError, match="not allowed here"):
        lab.compare("Hello", [("custom", {"custom_generate": recipe})])
    assert not mark.exists() and "custom" not in lab.offered()
    assert "custom" in Playground(tiny("llama")).offered()


@pytest.mark.parametrize("recipe", [None, 3, "", "/no/such/folder"])
def test_an_invalid_recipe_raises_an_error(recipe: Any) -> None:
    try:
        trace = run("llama", recipe)
    except PlaygroundError as refusal:
        assert "custom_generate" in str(refusal)
    else:
        assert trace.error is not None and "custom_generate/generate.py" in trace.error
