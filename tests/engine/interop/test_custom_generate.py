"""Strategies in plain transformers: `model.generate(..., custom_generate=strategy.generate)`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import set_seed

import strategies
from playground import Playground, PlaygroundError
from playground.export.recipe import write
from tests.tiny import tiny

REPOSITORY = Path(__file__).parents[3]
PROMPT = "Hello there"
CASES: dict[str, dict[str, Any]] = {
    "beam_search": {"num_beams": 4, "num_return_sequences": 3, "length_penalty": 0.7},
    "diverse_beam_search": {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.8},
    "constrained_beam_search": {"num_beams": 3, "force_words_ids": [[45, 46], [50]]},
    "contrastive_search": {"penalty_alpha": 0.6, "top_k": 4},
    "dola": {"dola_layers": "low", "repetition_penalty": 1.2},
}


def generated(model: Any, texts: list[str], id: str, **settings: Any) -> list[list[int]]:
    """The new tokens that `model.generate` gives with a strategy, padding cut off."""
    model.tokenizer.padding_side = "left"
    inputs = model.tokenizer(texts, return_tensors="pt", padding=True, return_token_type_ids=False)
    generate = getattr(strategies, id).generate
    output = model.module.generate(**inputs, **settings, custom_generate=generate)
    start = 1 if model.is_encoder_decoder else inputs.input_ids.shape[1]
    return [unpadded(row[start:].tolist()) for row in output]


def unpadded(tokens: list[int]) -> list[int]:
    return tokens[: tokens.index(2) + 1] if 2 in tokens else tokens


def engines(model: Any, text: str, id: str, **settings: Any) -> list[list[int]]:
    settings = {**settings}
    new = settings.pop("max_new_tokens")
    seed = settings.pop("seed", 0)
    [trace] = Playground(model).compare(text, [(id, settings)], max_new_tokens=new, seed=seed)
    return [list(sequence.token_ids) for sequence in trace.sequences]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "qwen3", "t5", "bart"])
@pytest.mark.parametrize("id", CASES)
def test_custom_generate_gives_the_tokens_of_the_playground(id: str, kind: str) -> None:
    if id == "dola" and kind in ("t5", "bart"):
        return
    model, settings = tiny(kind), {**CASES[id], "max_new_tokens": 12}
    assert generated(model, [PROMPT], id, **settings) == engines(model, PROMPT, id, **settings)


@pytest.mark.parametrize("id", CASES)
def test_prompts_of_a_batch_are_independent_of_each_other_and_of_padding(id: str) -> None:
    model, settings = tiny("llama"), {**CASES[id], "max_new_tokens": 8}
    both = generated(model, [PROMPT, "Hi"], id, **settings)
    alone = [row for text in (PROMPT, "Hi") for row in engines(model, text, id, **settings)]
    assert both == alone


def test_sampling_follows_set_seed() -> None:
    model = tiny("llama")
    settings = {"dola_layers": "high", "do_sample": True, "max_new_tokens": 12}
    set_seed(5)
    drawn = generated(model, [PROMPT], "dola", **settings)
    assert drawn == engines(model, PROMPT, "dola", seed=5, **settings)


def test_sequence_scores_are_those_of_generate() -> None:
    model = tiny("gpt2")
    inputs = model.tokenizer(PROMPT, return_tensors="pt", return_token_type_ids=False)
    with_scores: dict[str, Any] = {"return_dict_in_generate": True, "output_scores": True}
    settings = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 9}
    from strategies import beam_search

    generate = beam_search.generate
    ours = model.module.generate(**inputs, **settings, **with_scores, custom_generate=generate)
    theirs = model.module.generate(**inputs, **settings, **with_scores)
    assert torch.equal(ours.sequences, theirs.sequences)
    assert torch.allclose(ours.sequences_scores, theirs.sequences_scores, atol=1e-5)


class Streamer:
    """A streamer without `revise`."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.calls = 0
        self.ended = False

    def put(self, tokens: torch.Tensor) -> None:
        self.tokens += tokens.tolist()
        self.calls += 1

    def end(self) -> None:
        self.ended = True


class RevisingStreamer(Streamer):
    """A streamer that can take tokens back."""

    taken_back = 0

    def revise(self, kept: int, tokens: list[int]) -> None:
        self.taken_back += len(self.tokens) > kept
        self.tokens = [*self.tokens[:kept], *tokens]
        self.calls += 1


@pytest.mark.parametrize("kind", ["llama", "gpt2", "t5", "bart"])
def test_a_streamer_with_revise_receives_the_leading_beam(kind: str) -> None:
    model = tiny(kind)
    settings = {"num_beams": 3, "max_new_tokens": 16}
    streamer = RevisingStreamer()
    [text] = generated(model, [PROMPT], "beam_search", beam_streamer=streamer, **settings)
    assert unpadded(streamer.tokens) == text and streamer.ended and streamer.calls > 5


def test_the_leading_beam_is_sometimes_revised() -> None:
    streamer = RevisingStreamer()
    settings = {"num_beams": 3, "max_new_tokens": 16}
    generated(tiny("llama"), [PROMPT], "beam_search", beam_streamer=streamer, **settings)
    assert streamer.taken_back > 0


@pytest.mark.parametrize("kind", ["llama", "gpt2", "t5", "bart"])
def test_a_streamer_without_revise_receives_only_final_tokens(kind: str) -> None:
    for new in range(1, 14):
        streamer = Streamer()
        settings = {"num_beams": 3, "max_new_tokens": new}
        [text] = generated(tiny(kind), [PROMPT], "beam_search", beam_streamer=streamer, **settings)
        assert unpadded(streamer.tokens) == text and streamer.ended


def test_unsupported_arguments_raise_an_explanation() -> None:
    with pytest.raises(ValueError, match="do_sample is True; contrastive_search always has False"):
        generated(tiny("llama"), [PROMPT], "contrastive_search", do_sample=True, max_new_tokens=2)
    with pytest.raises(ValueError, match="streams one text"):
        settings = {"num_beams": 2, "beam_streamer": Streamer(), "max_new_tokens": 2}
        generated(tiny("llama"), [PROMPT, "Hi"], "beam_search", **settings)


FRESH = """
import json, sys
import torch
from transformers import AutoModelForCausalLM

folder, cases, ids = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
model = AutoModelForCausalLM.from_pretrained(folder + "/model").eval()
rows = {}
for id, settings in cases.items():
    code = {"custom_generate": folder + "/" + id, "trust_remote_code": True}
    rows[id] = model.generate(torch.tensor([ids]), **code, **settings).tolist()
ours = {name.split(".")[0] for name in sys.modules} & {"engine", "strategies", "playground"}
assert not ours, ours
print(json.dumps(rows))
"""


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_exported_recipes_run_in_a_fresh_interpreter(kind: str, tmp_path: Path) -> None:
    model = tiny(kind)
    model.module.save_pretrained(tmp_path / "model")
    cases = {id: {**settings, "max_new_tokens": 10} for id, settings in CASES.items()}
    for id in cases:
        write(id, tmp_path / id)
    ids = model.tokenizer(PROMPT).input_ids
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(tmp_path), json.dumps(cases), json.dumps(ids)],
        cwd=tmp_path,  # nothing of ours is on the path there
        env={"HF_MODULES_CACHE": str(tmp_path / "code")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for id, rows in json.loads(done.stdout).items():
        new = [unpadded(row[len(ids) :]) for row in rows]
        assert new == engines(model, PROMPT, id, **cases[id]), id


def test_an_exported_recipe_has_a_readme_and_requirements(tmp_path: Path) -> None:
    write("contrastive_search", tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "custom_generate" in text.split("---")[1]
    assert "Su et al. 2022" in text and "penalty_alpha=0.6" in text
    code = text.split("```python\n")[1].split("```")[0]
    compile(code, "README", "exec")
    needs = (tmp_path / "custom_generate" / "requirements.txt").read_text()
    assert "transformers" in needs and "torch" in needs
    for path in (tmp_path / "custom_generate").glob("*.py"):
        assert "from engine" not in path.read_text() and "from strategies" not in path.read_text()


def test_a_strategy_that_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlaygroundError, match="contrastive_search"):
        write("greedy", tmp_path)
    with pytest.raises(PlaygroundError, match="cannot write"):
        write("dola", Path("/dev/null/recipe"))
