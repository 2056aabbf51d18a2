"""Exported programs run, and give the tokens of the run they were exported from."""

import ast
import copy
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from uuid import uuid4

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from transformers import GenerationConfig, SynthIDTextWatermarkingConfig, WatermarkingConfig

from engine.models import loading as models
from engine.models.embedded import CACHE_VARIABLE
from engine.settings import Limits
from playground import Playground, PlaygroundError
from playground.export.code import code, python_api
from playground.export.literals import Code, assigned, call
from playground.export.program import DRAFTING, NATIVE, Program
from playground.export.recipe import write
from strategies import registered
from tests import processes
from tests.draft_models import draft
from tests.heads import random_heads
from tests.tiny import tiny

REPOSITORY = Path(__file__).parents[3]
PROMPT = "Once upon a time, there was a little girl named Lily. Lily had a red ball. Lily loved"
NASTY = 'He said "it\'s ${fine}"\n\n\\n {x} %s \t\'\'\' """ # é 🙂 \x00\x1b </script>'
CHAT = [
    {"role": "system", "content": 'You say "yes" and it\'s fine.'},
    {"role": "user", "content": "Why is the sky blue?\nSay it in one sentence."},
]
KGW = {"greenlist_ratio": 0.25, "bias": 2.5, "hashing_key": 15485863}
SYNTHID = SynthIDTextWatermarkingConfig(ngram_len=3, keys=[1, 2, 3], sampling_table_size=256)


def first(model, input_ids, logits_processor, stopping_criteria, **_):
    """Greedy decoding as a user might write it."""
    while True:
        scores = logits_processor(input_ids, model(input_ids).logits[:, -1])
        input_ids = torch.cat([input_ids, scores.argmax(-1, keepdim=True)], dim=-1)
        if stopping_criteria(input_ids, None).all():
            return input_ids


@pytest.fixture(scope="module")
def linted(tmp_path_factory):
    """Collects programs and lints all of them at the end: ruff starts only once."""
    folder = tmp_path_factory.mktemp("programs")
    yield lambda program: folder.joinpath(f"{uuid4()}.py").write_bytes(program.encode())
    done = subprocess.run(
        [
            shutil.which("ruff", path=Path(sys.executable).parent),
            *("check", "--isolated", "--select=E,F,I,W", "--ignore=E501", folder),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def run(embedded, monkeypatch, capsys):
    """Runs a program on loaded models; returns its new tokens and its output."""
    load = models.load

    def run(program, lab=embedded):
        known = {lab.model.name: lab.model}
        monkeypatch.setattr(
            models, "load", lambda name, **how: known.get(name) or load(name, **how)
        )
        monkeypatch.setattr("playground.Playground", lambda name, **_: lab)
        own = lab.model.module.generation_config
        monkeypatch.setattr(lab.model.module, "generation_config", copy.deepcopy(own))
        scope = {}
        capsys.readouterr()
        exec(program, scope)
        lab.model.module.generation_config = own
        if "traces" in scope:
            rows = [sequence.token_ids for sequence in scope["traces"][0].sequences]
        else:
            rows = scope["new_tokens"].tolist()
        return [list(row) for row in rows], capsys.readouterr().out

    return run


def same(rows, trace, lab):
    """Assert equal tokens, apart from padding or further end tokens after the end of a row."""
    fillers = {lab.model.tokenizer.pad_token_id, lab.model.tokenizer.eos_token_id}
    expected = [list(sequence.token_ids) for sequence in trace.sequences]
    assert [row[: len(ids)] for row, ids in zip(rows, expected, strict=True)] == expected
    for row, ids in zip(rows, expected, strict=True):
        assert set(row[len(ids) :]) <= fillers


# Every strategy, on the embedded model

OWN = {
    "sample": {"top_p": 0.9, "temperature": 1.3, "num_return_sequences": 3},
    "beam_search": {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.5},
    "beam_sample": {"num_beams": 3, "top_k": 20},
    "diverse_beam_search": {"num_beams": 4, "num_beam_groups": 2},
    "constrained_beam_search": {"num_beams": 3, "force_words": ["dragon", ["cake", "bread"]]},
    "contrastive_search": {"penalty_alpha": 0.4, "top_k": 5},
    "dola": {"dola_layers": "high", "do_sample": True},
    "speculative": {"assistant_model": "stories15m", "num_assistant_tokens": 4},
    "prompt_lookup": {"prompt_lookup_num_tokens": 4, "max_matching_ngram_size": 3},
    "early_exit": {"assistant_early_exit": 10, "num_assistant_tokens": 3},
    "medusa": {"medusa_tokens": 6},
    "custom": {"custom_generate": first},
}


def in_transformers(id):
    """Whether transformers decodes like this itself, or with the strategy's own `generate`."""
    module = sys.modules[registered()[id].decode.__module__]
    return id in NATIVE or id in DRAFTING or hasattr(module, "generate")


def test_only_medusa_and_custom_have_no_program_in_plain_transformers():
    known = {"contrastive_search", "diverse_beam_search", "constrained_beam_search", "dola"}
    assert all(map(in_transformers, (*NATIVE, *DRAFTING, *known)))
    assert not in_transformers("medusa") and not in_transformers("custom")


@pytest.mark.parametrize("id", registered())
def test_program_gives_the_tokens_of_the_run(linted, embedded, run, id):
    choice = (id, OWN.get(id, {}))
    shared = {"max_new_tokens": 12, "seed": 7}
    program = code(embedded, PROMPT, choice, **shared)
    linted(program)
    [trace] = embedded.compare(PROMPT, [choice], **shared)
    rows, printed = run(program)
    same(rows, trace, embedded)
    assert trace.text.removesuffix("<|im_end|>") in printed
    assert ("lab.compare" in program) is not in_transformers(id)


@pytest.mark.parametrize("id", ["sample", "custom"])
@pytest.mark.parametrize("prompt", [NASTY, CHAT, "so " * 30], ids=["nasty", "chat", "long"])
def test_prompts_are_written_exactly(linted, embedded, run, id, prompt):
    choice = (id, OWN[id])
    program = code(embedded, prompt, choice, max_new_tokens=6)
    linted(program)
    [trace] = embedded.compare(prompt, [choice], max_new_tokens=6)
    rows, _ = run(program)
    same(rows, trace, embedded)


# On models of other kinds, from folders as transformers loads them


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Saves a model with its tokenizer; gives its folder."""

    def folder(model):
        path = tmp_path_factory.mktemp("model")
        model.module.save_pretrained(path)
        model.tokenizer.save_pretrained(path)
        return str(path)

    return folder


@pytest.fixture(scope="module")
def loaded(folder):
    """The playground on a tiny model's folder; each kind is loaded once."""
    return cache(lambda kind: Playground(folder(tiny(kind))))


@pytest.fixture(scope="module")
def llama(folder):
    return Playground(folder(tiny("llama")), heads=random_heads(tiny("llama")))


SHARED = {
    "a watermark": {"watermarking_config": KGW},
    "a watermark as an object": {"watermarking_config": WatermarkingConfig(**KGW)},
    "no n-gram twice": {"no_repeat_ngram_size": 1},
    "stop strings": {"stop_strings": ["a", "e", "'\""]},
    "words": {
        "bad_words_ids": ["a", "it is"],
        "sequence_bias": {"b": -4.0, "cd": 6.0},
        "suppress_tokens": ["e"],
    },
    "endings": {"min_new_tokens": 10, "eos_token_id": [2, "."], "repetition_penalty": 1.3},
}


@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED)
@pytest.mark.parametrize("id", registered())
def test_shared_settings_have_the_same_effect_in_the_program(linted, llama, run, id, shared):
    own = {"assistant_model": llama.model.name} if "speculative" in id else OWN.get(id, {})
    shared = {"max_new_tokens": 12, "seed": 3, **own, **shared}
    shared.pop("assistant_early_exit", None)  # it has two layers
    program = code(llama, "Hello there", (id, shared))
    linted(program)
    [trace] = llama.compare("Hello there", [(id, shared)])
    rows, _ = run(program, llama)
    same(rows, trace, llama)


TINY = {
    "guidance": ("greedy", {"guidance_scale": 2.0, "negative_prompt": "bye"}),
    "guided beams": (
        "beam_search",
        {"num_beams": 3, "guidance_scale": 2.0, "negative_prompt_ids": torch.tensor([[40, 41]])},
    ),
    "synthid": ("sample", {"watermarking_config": SYNTHID, "num_return_sequences": 2}),
    "decay": ("sample", {"exponential_decay_length_penalty": [4, 1.5], "top_k": 0}),
    "one beam": ("beam_search", {"num_beams": 1}),
    "huge seed": ("sample", {"seed": 2**40 + 1}),
    "many words": ("greedy", {"bad_words_ids": [[id, id + 1] for id in range(3, 60)]}),
}


@pytest.mark.parametrize("kind", ["llama", "bart"])
@pytest.mark.parametrize("choice", TINY.values(), ids=TINY)
def test_model_folder_is_loaded_with_plain_transformers(linted, loaded, run, kind, choice):
    lab = loaded(kind)
    program = code(lab, "Hello there", choice, max_new_tokens=12)
    linted(program)
    assert "engine" not in program
    [trace] = lab.compare("Hello there", [choice], max_new_tokens=12)
    rows, _ = run(program, lab)
    same(rows, trace, lab)


@pytest.mark.parametrize("how", ["good", "bad"])
@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_draft_model_of_the_same_vocabulary_works_in_transformers(
    linted, loaded, folder, run, kind, how
):
    lab = loaded(kind)
    choice = ("speculative", {"assistant_model": folder(draft(kind, how))})
    program = code(lab, "Hello there", choice, max_new_tokens=12)
    linted(program)
    assert program.count(".from_pretrained") == 4 and "engine" not in program
    [trace] = lab.compare("Hello there", [choice], max_new_tokens=12)
    rows, _ = run(program, lab)
    same(rows, trace, lab)


@pytest.mark.parametrize("kind", ["llama", "bart", "t5"])
@pytest.mark.parametrize("id", ["sample", "beam_search", "contrastive_search", "prompt_lookup"])
def test_program_continues_from_the_prefix(linted, loaded, run, kind, id):
    lab = loaded(kind)
    choice = (id, {"repetition_penalty": 1.2, "min_new_tokens": 4, **OWN[id]})
    [whole] = lab.compare("Hello there", [choice], max_new_tokens=12)
    prefix = whole.sequences[0].token_ids[:4]
    program = code(lab, "Hello there", choice, prefix=prefix, max_new_tokens=8)
    linted(program)
    [trace] = lab.compare("Hello there", [choice], prefix=prefix, max_new_tokens=8)
    rows, _ = run(program, lab)
    same(rows, trace, lab)


def test_playground_program_continues_from_a_text_prefix(linted, embedded, run):
    shared = {"prefix": " there was a", "max_new_tokens": 6}
    program = python_api(embedded, "Once upon a time", ["greedy", "speculative"], **shared)
    linted(program)
    one, two = embedded.compare("Once upon a time", ["greedy", "speculative"], **shared)
    rows, printed = run(program)
    same(rows, one, embedded)
    assert one.text in printed and two.text in printed


def test_generation_config_of_the_model_does_not_change_the_strategy(folder, run):
    path = folder(tiny("llama"))
    GenerationConfig(num_beams=4, do_sample=True, eos_token_id=2).save_pretrained(path)
    lab = Playground(path)
    for id in ("greedy", "beam_search"):
        program = code(lab, "Hello there", id, max_new_tokens=8)
        [trace] = lab.compare("Hello there", [id], max_new_tokens=8)
        rows, _ = run(program, lab)
        same(rows, trace, lab)


def test_inputs_are_moved_to_the_device_of_the_model(linted, folder):
    lab = Playground(folder(tiny("llama")))
    choice = ("beam_search", {"guidance_scale": 2.0, "negative_prompt": "bye"})
    [request] = lab.parse("Hi", [choice], prefix=[40]).requests
    lab.model.module.to("meta", torch.bfloat16)  # a device that every machine has
    program = Program(lab.model, request, [40]).text("Hi")
    linted(program)
    for line in (
        "model = model.to('meta')",
        "inputs = inputs.to(model.device)",
        "negative_prompt_ids=negative.repeat(5, 1).to(model.device)",
    ):
        assert line in program
    assert "dtype='bfloat16'" in program
    lab.model.module.hf_device_map = {"": 0}
    spread = Program(lab.model, request).text("Hi")
    assert "device_map='auto'" in spread and "model.to(" not in spread


def test_programs_run_in_a_new_process(embedded):
    choice = ("sample", {"top_p": 0.9})
    shared = {"max_new_tokens": 6, "seed": 4}
    [trace] = embedded.compare(CHAT, [choice], **shared)
    for program in (
        code(embedded, CHAT, choice, **shared),
        python_api(embedded, CHAT, [choice], **shared),
    ):
        done = processes.run(["-c", program], cwd=REPOSITORY)
        assert done.stdout == f"{trace.text}\n", done.stderr


def run_in(folder: Path, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder of its own, with no other variables than these."""
    folder.joinpath("program.py").write_text(program, encoding="utf-8")
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", CACHE_VARIABLE) if name in os.environ
    }
    return processes.run(["program.py"], cwd=folder, env={**kept, **variables})


def test_a_program_in_plain_transformers_runs_in_an_empty_folder(tmp_path):
    model = tiny("llama")
    model.module.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    lab = Playground(str(tmp_path / "model"))
    choice = ("sample", {"top_k": 20})
    [trace] = lab.compare("a few words", [choice], max_new_tokens=8, seed=3)
    program = code(lab, "a few words", choice, max_new_tokens=8, seed=3)
    assert program.startswith(
        f"# Needs: pip install torch transformers=={transformers.__version__}\n"
    )
    assert not any(name in program for name in ("playground", "engine", "strategies"))
    empty = tmp_path / "empty"
    empty.mkdir()
    done = run_in(empty, program)
    assert done.stdout == f"{trace.text}\n", done.stderr


def test_a_program_with_the_playground_runs_in_an_empty_folder_as_its_first_lines_say(
    embedded, tmp_path
):
    shared = {"max_new_tokens": 4}
    [trace] = embedded.compare(PROMPT, ["contrastive_search"], **shared)
    for number, program in enumerate(
        (
            code(embedded, PROMPT, "contrastive_search", **shared),
            python_api(embedded, PROMPT, ["contrastive_search"], **shared),
        )
    ):
        head = program.split("\n\n")[0]
        assert "pip install -r requirements.txt" in head and "PYTHONPATH=" in head
        folder = tmp_path / str(number)
        folder.mkdir()
        done = run_in(folder, program, PYTHONPATH=str(REPOSITORY))
        assert done.stdout == f"{trace.text}\n", done.stderr


def test_a_program_that_needs_the_playground_and_says_why_names_both_first(embedded):
    program = code(embedded, PROMPT, ("speculative", {"do_sample": True}), max_new_tokens=4)
    head = program.split("\n\n")[0]
    assert head.startswith("# With drafts") and "pip install -r requirements.txt" in head


def test_trained_draft_model_works_in_plain_transformers(linted, embedded, run):
    program = code(embedded, PROMPT, "speculative", max_new_tokens=8)
    linted(program)
    assert "load('smollm2-draft')" in program and "from playground" not in program
    [trace] = embedded.compare(PROMPT, ["speculative"], max_new_tokens=8)
    rows, _ = run(program)
    same(rows, trace, embedded)


def test_early_exit_works_in_plain_transformers_without_the_trained_exit(linted, embedded, run):
    program = code(embedded, PROMPT, "early_exit", max_new_tokens=12)
    linted(program)
    assert "assistant_early_exit=2" in program and "no trained exits" in program
    [trace] = embedded.compare(PROMPT, ["early_exit"], max_new_tokens=12)
    rows, _ = run(program, embedded)
    same(rows, trace, embedded)


# What transformers cannot repeat


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (("prompt_lookup", {"do_sample": True}), "samples other tokens"),
        (("early_exit", {"stop_strings": "ball"}), "stop strings"),
        (("beam_sample", {"num_beams": 1}), "without beam search"),
    ],
)
def test_program_uses_the_playground_if_transformers_gives_other_tokens(
    linted, embedded, run, choice, reason
):
    program = code(embedded, PROMPT, choice, max_new_tokens=8)
    linted(program)
    comment = " ".join(line[2:] for line in program.splitlines() if line.startswith("# "))
    assert reason in comment and "uses the playground" in comment
    [trace] = embedded.compare(PROMPT, [choice], max_new_tokens=8)
    rows, _ = run(program)
    same(rows, trace, embedded)


# The playground's own program


def test_comparison_is_written_as_one_call(linted, embedded, run):
    choices = [
        "greedy",
        ("beam_search", {"num_beams": 3, "num_return_sequences": 2}),
        ("constrained_beam_search", {"force_words": "dragon"}),
        GenerationConfig(do_sample=True, top_p=0.5, max_new_tokens=4),
    ]
    shared = {"max_new_tokens": 6, "seed": 5, "watermarking_config": WatermarkingConfig(**KGW)}
    program = python_api(embedded, NASTY, choices, **shared)
    linted(program)
    _, printed = run(program)
    traces = embedded.compare(NASTY, choices, **shared)
    texts = [sequence.text for trace in traces for sequence in trace.sequences]
    assert all(text in printed for text in texts)
    assert printed.count("# ") >= 4


def test_custom_generate_folder_is_named_in_the_program(linted, loaded, run, tmp_path):
    write("contrastive_search", tmp_path)
    lab = loaded("llama")
    choice = ("custom", {"custom_generate": str(tmp_path), "arguments": {"top_k": 3}})
    program = code(lab, "Hi", choice, max_new_tokens=4)
    linted(program)
    assert str(tmp_path) in program
    [trace] = lab.compare("Hi", [choice], max_new_tokens=4)
    assert run(program, lab)[0] == [list(trace.sequences[0].token_ids)]


def test_wider_limits_are_in_the_program(linted):
    lab = Playground(tiny("llama"), limits=Limits(max_new_tokens=2000, rows=4))
    program = python_api(lab, "Hi", ["greedy"], max_new_tokens=1500)
    linted(program)
    assert "limits=Limits(max_new_tokens=2000)" in program


def test_values_that_cannot_be_written_as_code_raise(embedded):
    with pytest.raises(PlaygroundError, match="cannot be written as code"):
        code(embedded, "Hi", "greedy", logits_processor=[object()])
    with pytest.raises(PlaygroundError, match="define it at the top of a module"):
        code(embedded, "Hi", ("custom", {"custom_generate": lambda model, **_: None}))
    with pytest.raises(PlaygroundError, match="did you mean 'num_beams'"):
        code(embedded, "Hi", ("beam_search", {"num_beam": 2}))


# Literals


@given(st.text(max_size=120))
def test_any_text_survives_being_written(text):
    assert ast.literal_eval(assigned("x", text).removeprefix("x = ")) == text


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab\"'\\\n é", max_size=30),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text("abc", min_size=1, max_size=9), inner, max_size=4)
    ),
    max_leaves=25,
)


@given(VALUES)
def test_any_value_survives_being_written(value):
    assert ast.literal_eval(assigned("x", value).removeprefix("x = ")) == value


def test_long_values_and_calls_are_valid_source():
    value = {"content": "a word " * 30, "ids": list(range(60)), "code": Code("name")}
    source = str(call("f", (Code("**inputs"), "a word " * 30), {"a": 1, "b": value}, long=True))
    scope = {"inputs": {"c": 3}, "name": "n", "f": lambda text, **given: (text, given)}
    text, given = eval(source.replace("**inputs,", "", 1), scope)
    assert text == "a word " * 30
    assert given == {"a": 1, "b": {**value, "code": "n"}}
    assert max(map(len, source.splitlines())) <= 100
