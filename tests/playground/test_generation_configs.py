"""Generation configs: the strategy picked, the changes of a run, and files."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import GenerationConfig, set_seed

from engine.errors import PlaygroundError
from playground import Playground
from playground import generation_configs as configs
from playground.cli.main import main
from tests.tiny import generate, tiny

PROMPT = "Hello there"
STRATEGIES: list[tuple[dict[str, Any], str]] = [
    ({}, "greedy"),
    ({"num_beams": 1, "temperature": 0.5}, "greedy"),
    ({"do_sample": True, "top_p": 0.8}, "sample"),
    ({"num_beams": 3, "length_penalty": 0.5}, "beam_search"),
    ({"num_beams": 3, "do_sample": True}, "beam_sample"),
    ({"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 0.5}, "diverse_beam_search"),
    ({"num_beams": 3, "force_words_ids": [[45]]}, "constrained_beam_search"),
    ({"penalty_alpha": 0.6, "top_k": 4}, "contrastive_search"),
    ({"penalty_alpha": 0.0, "top_k": 4}, "greedy"),
    ({"dola_layers": "low"}, "dola"),
    ({"prompt_lookup_num_tokens": 3}, "prompt_lookup"),
    ({"assistant_early_exit": 1}, "early_exit"),
]


@pytest.fixture(scope="module")
def lab() -> Playground:
    return Playground(tiny("llama"))


@pytest.mark.parametrize(("fields", "strategy"), STRATEGIES)
def test_config_runs_the_strategy_that_transformers_picks(
    fields: dict[str, Any], strategy: str, lab: Playground
) -> None:
    [trace] = lab.compare(PROMPT, [GenerationConfig(**fields)], max_new_tokens=6)
    assert (trace.strategy, trace.error) == (strategy, None)
    printed = {name: trace.settings[name] for name in fields if name in trace.settings}
    assert printed == {name: value for name, value in fields.items() if name in printed}


@pytest.mark.parametrize("fields", [{}, {"do_sample": True, "top_k": 7}, {"num_beams": 3}])
def test_config_gives_the_tokens_of_generate(fields: dict[str, Any], lab: Playground) -> None:
    config = GenerationConfig(**fields, max_new_tokens=9, repetition_penalty=1.2)
    set_seed(4)
    expected, _ = generate(lab.model, PROMPT, {"generation_config": config}, seed=4)
    [trace] = lab.compare(PROMPT, [config], seed=4)
    assert [list(sequence.token_ids) for sequence in trace.sequences] == expected


def test_arguments_override_a_config_as_in_generate(lab: Playground) -> None:
    [trace] = lab.compare(PROMPT, [GenerationConfig(max_new_tokens=9)], max_new_tokens=3)
    assert len(trace.sequences[0].token_ids) == 3


def test_max_length_counts_the_prompt(lab: Playground) -> None:
    [trace] = lab.compare(PROMPT, [GenerationConfig(max_length=len(PROMPT) + 5)])
    assert len(trace.sequences[0].token_ids) == 5
    encoder_decoder = Playground(tiny("t5"))
    [trace] = encoder_decoder.compare(PROMPT, [GenerationConfig(max_length=5)])
    assert len(trace.sequences[0].token_ids) <= 4


def test_missing_settings_come_from_the_config_of_the_model() -> None:
    model = tiny("gpt2")
    own = model.module.generation_config
    try:
        own.num_beams, own.length_penalty = 3, 0.3
        [trace] = Playground(model).compare(PROMPT, [GenerationConfig()], max_new_tokens=4)
    finally:
        own.num_beams, own.length_penalty = None, None
    assert trace.strategy == "beam_search"
    assert (trace.settings["num_beams"], trace.settings["length_penalty"]) == (3, 0.3)


@pytest.mark.parametrize(("fields", "strategy"), STRATEGIES)
def test_run_saved_as_a_config_gives_the_same_tokens(
    fields: dict[str, Any], strategy: str, lab: Playground, tmp_path: Path
) -> None:
    config = lab.configuration(GenerationConfig(**fields), max_new_tokens=6)
    configs.save(config, tmp_path / "one.json")
    again = GenerationConfig.from_pretrained(tmp_path, "one.json")  # as transformers reads it
    first, second = lab.compare(PROMPT, [GenerationConfig(**fields), again], max_new_tokens=6)
    assert second.strategy == first.strategy == strategy
    assert second.sequences == first.sequences


def test_words_are_saved_as_tokens_and_changes_are_listed(lab: Playground) -> None:
    own = lab.model.module.generation_config
    config = lab.configuration(("sample", {"top_p": 0.7}), bad_words_ids=["x"])
    changed = configs.changes(own, config)
    assert changed["top_p"] == (None, 0.7) and changed["do_sample"] == (None, True)
    spelled = lab.model.tokenizer("x").input_ids
    assert spelled in changed["bad_words_ids"][1]
    assert "eos_token_id" not in changed


@pytest.mark.parametrize(
    "mark", [{"ngram_len": 3, "keys": [5, 6]}, {"bias": 1.5, "seeding_scheme": "selfhash"}]
)
def test_both_kinds_of_watermark_are_saved_and_loaded(
    mark: dict[str, Any], lab: Playground, tmp_path: Path
) -> None:
    config = lab.configuration(("sample", {"watermarking_config": mark}))
    configs.save(config, tmp_path / "marked.json")
    again = configs.load(tmp_path / "marked.json").watermarking_config
    assert {name: again.to_dict()[name] for name in mark} == mark


@pytest.mark.parametrize(
    ("id", "settings", "lost"),
    [
        ("speculative", {"assistant_model": "stories15m"}, "assistant_model"),
        ("universal_speculative", {}, "assistant_model"),  # whose default is a name
        ("early_exit", {"assistant_early_exit": 1, "trained_exit": False}, "trained_exit"),
    ],
)
def test_settings_without_a_config_field_raise(
    lab: Playground, id: str, settings: dict[str, Any], lost: str
) -> None:
    with pytest.raises(PlaygroundError, match=f"no field for {lost}"):
        lab.configuration((id, settings))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no json", "is not a generation config"),
        ("[1]", "it is not a JSON object"),
        ('{"num_beam": 3}', "did you mean 'num_beams'"),
    ],
)
def test_invalid_file_raises(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(PlaygroundError, match=words):
        configs.load(tmp_path / "bad.json")


def test_missing_file_raises_with_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "creative.json").write_text("{}")
    with pytest.raises(PlaygroundError, match=r"did you mean 'creative\.json'"):
        configs.load(tmp_path / "creativ.json")


def test_config_command_saves_and_shows_configs_that_compare_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tiny("llama")
    home, folder = tmp_path / "model", tmp_path / "configs"
    model.module.save_pretrained(home)
    model.tokenizer.save_pretrained(home)
    for name, run in (("creative", "sample:top_p=0.9"), ("careful", "contrastive_search")):
        arguments = ["config", str(folder), "--save", name, "--run", run, "--model", str(home)]
        assert main([*arguments, "--set", "max_new_tokens=4"]) == 0
    assert main(["config", str(folder), "--model", str(home)]) == 0
    printed = capsys.readouterr().out
    assert "creative.json, sample" in printed and "careful.json, contrastive_search" in printed
    assert "top_p: None -> 0.9" in printed and "the model's own" in printed
    assert json.loads((folder / "creative.json").read_text())["top_p"] == 0.9
    files = [f"{folder}/{name}.json" for name in ("creative", "careful")]
    runs = [word for file in files for word in ("--config", file)]
    assert main(["compare", PROMPT, *runs, "--model", str(home)]) == 0
    printed = capsys.readouterr().out
    assert "# sample" in printed and "# contrastive_search" in printed and "4 new tokens" in printed
