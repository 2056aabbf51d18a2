"""Loading models: tiny random ones in folders and on a fake Hub, and every way to fail."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import gguf
import huggingface_hub
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, T5Config
from transformers import T5ForConditionalGeneration as T5

from engine.errors import PlaygroundError
from engine.models import loading as models

REPOSITORY = Path(__file__).parents[3]
WORDS = ["<end>", "the", "quick", "brown", "fox"]


def save_tokenizer(folder: Path) -> None:
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<end>"))
    backend.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")
    tokenizer.save_pretrained(folder)


def save_llama(folder: Path) -> Path:
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_gguf(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_block_count(1)
    writer.add_feed_forward_length(16)
    writer.add_head_count(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<end>", "a", "b", "ab", "ba"])
    writer.add_token_merges(["a b", "b a"])
    shapes = {"token_embd": (5, 8), "output": (5, 8), "output_norm": (8,)}
    shapes |= {f"blk.0.attn_{name}": (8, 8) for name in ("q", "k", "v", "output")}
    shapes |= {"blk.0.attn_norm": (8,), "blk.0.ffn_norm": (8,), "blk.0.ffn_down": (8, 16)}
    shapes |= {"blk.0.ffn_gate": (16, 8), "blk.0.ffn_up": (16, 8)}
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", torch.rand(shape).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return save_llama(tmp_path / "tiny-llama")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def refusal(name: str | Path, **options: Any) -> str:
    with pytest.raises(PlaygroundError) as caught:
        models.load(str(name), **options)
    return str(caught.value)


def test_a_local_folder_loads_under_the_name_it_was_given(llama: Path) -> None:
    model = models.load(str(llama), device="cpu")
    assert model.name == str(llama)
    assert model.device == torch.device("cpu")
    assert model.context_length == 64
    assert model.tokenizer("the fox").input_ids == [1, 4]


@pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16])
def test_the_dtype_can_be_named_or_given(llama: Path, dtype: str | torch.dtype) -> None:
    assert models.load(str(llama), device="cpu", dtype=dtype).module.dtype == torch.bfloat16


def test_an_encoder_decoder_has_no_length_limit_where_its_positions_are_relative(
    tmp_path: Path,
) -> None:
    config = T5Config(vocab_size=len(WORDS), d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    config.n_positions = 512  # as the published checkpoints say
    T5(config).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    model = models.load(str(tmp_path), device="cpu")
    assert isinstance(model.module, T5)
    assert model.is_encoder_decoder
    assert model.context_length is None


@pytest.mark.parametrize("given", [".", "tiny.gguf"])
def test_a_gguf_file_or_its_folder_loads_as_plain_dense_weights(tmp_path: Path, given: str) -> None:
    save_gguf(tmp_path / "tiny.gguf")
    model = models.load(str(tmp_path / given), device="cpu")
    assert {weight.dtype for weight in model.module.parameters()} == {torch.float32}
    assert model.context_length == 64
    assert model.tokenizer("abba").input_ids == [3, 4]


def test_loading_does_not_switch_progress_bars(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched: list[str] = []
    for name in ("enable_progress_bar", "disable_progress_bar"):
        monkeypatch.setattr(transformers.logging, name, lambda name=name: switched.append(name))
    models.load(str(llama), device="cpu")
    assert not switched


def test_pickled_weights_are_refused_by_name(llama: Path) -> None:
    torch.save(load_file(llama / "model.safetensors"), llama / "pytorch_model.bin")
    (llama / "model.safetensors").unlink()
    assert "must hold safetensors or one GGUF, and holds pickled pytorch_model.bin" in refusal(
        llama
    )


def test_a_folder_without_weights_or_with_several_gguf_files_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path).endswith("holds neither")
    (tmp_path / "a.gguf").touch()
    (tmp_path / "b.gguf").touch()
    assert refusal(tmp_path).endswith("must hold safetensors or one GGUF, and holds a.gguf, b.gguf")


def test_a_misspelt_embedded_name_suggests_the_right_one() -> None:
    assert refusal("smolm2").endswith("did you mean 'smollm2'?")


def test_a_misspelt_folder_suggests_the_right_one(llama: Path) -> None:
    message = refusal(llama.with_name("tiny-lama"))
    assert "there is no such folder" in message
    assert message.endswith(f"did you mean {str(llama)!r}?")


@pytest.mark.parametrize("name", ["", "a//b", "no such/model: really"])
def test_an_invalid_name_lists_what_is_allowed(name: str) -> None:
    message = refusal(name)
    assert f"cannot find model {name!r}" in message
    assert "allowed are smollm2, stories15m (embedded), a local folder, or a Hub id" in message


@pytest.mark.usefixtures("offline")
def test_a_hub_model_without_network_says_that_the_hub_cannot_be_reached() -> None:
    assert "the Hub cannot be reached" in refusal("no-such-user/no-such-model")


LOAD_EACH = """
import sys
from engine.models import loading as models
from engine.errors import PlaygroundError
for name in sys.argv[1:]:
    try:
        print(models.load(name, device="cpu").name)
    except PlaygroundError as error:
        print(error)
"""


class FakeHub(BaseHTTPRequestHandler):
    """Serves the models in a folder; `gated` is denied, any other name is not found."""

    root: Path
    posted: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.posted.append(self.path)
        self.answer(404, "RepoNotFound")

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        repository = next((name for name in ("whole", "pickled", "gated") if name in path), None)
        file = self.root / str(repository) / path.rpartition("/")[2]
        if repository is None:
            self.answer(404, "RepoNotFound")
        elif repository == "gated":
            self.answer(403, "GatedRepo")
        elif path.startswith("/api/"):
            self.answer(200, body=b"[]" if "/tree/" in path else b"{}")
        elif file.is_file():
            self.answer(200, body=file.read_bytes())
        else:
            self.answer(404, "EntryNotFound")

    do_HEAD = do_GET

    def answer(self, status: int, error: str = "", body: bytes = b"") -> None:
        self.send_response(status)
        headers = {"X-Error-Code": error, "X-Repo-Commit": "0" * 40, "ETag": f'"{len(body)}"'}
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    save_llama(tmp_path / "whole")
    pickled = save_llama(tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    FakeHub.root = tmp_path
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeHub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_errors_of_the_hub_are_explained(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In a new process: the address of the Hub is read once, on import.
    monkeypatch.setenv("HF_ENDPOINT", hub)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    names = ["acme/whole", "acme/gated", "acme/unknown", "acme/pickled"]
    command = [sys.executable, "-c", LOAD_EACH, *names]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    whole, gated, unknown, pickled = done.stdout.splitlines()
    assert whole == "acme/whole"
    assert gated == "'acme/gated' is gated: ask for access on its page on the Hub"
    assert "'acme/unknown': the Hub does not have it, or keeps it private" in unknown
    reason = "it has no safetensors, and pickled weights can run code"
    assert pickled == f"cannot load 'acme/pickled': {reason}"
    assert FakeHub.posted == []  # no conversion was requested


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            {"model_type": "theirs", "auto_map": {"AutoConfig": "theirs.Config"}},
            "it needs code from its own repository, which is never run here",
        ),
        ({"model_type": "theirs"}, f"transformers {transformers.__version__} lacks it"),
        ({"model_type": "vit"}, "it is not a model that generates text"),
        ({}, "Unrecognized model in"),
    ],
)
def test_a_folder_of_another_kind_is_refused_with_the_reason(
    llama: Path, config: dict[str, Any], reason: str
) -> None:
    (llama / "config.json").write_text(json.dumps(config))
    assert f"cannot load {str(llama)!r}: " in (message := refusal(llama))
    assert reason in message


def test_a_checkpoint_with_missing_weights_is_refused(llama: Path) -> None:
    weights = load_file(llama / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, llama / "model.safetensors", {"format": "pt"})
    assert refusal(llama).endswith("(first lm_head.weight): they would be random numbers")


def test_unreadable_weights_are_refused(llama: Path) -> None:
    (llama / "model.safetensors").write_bytes(b"nonsense")
    assert refusal(llama).startswith(f"cannot load {str(llama)!r}: SafetensorError: ")


def test_an_unreadable_embedded_model_is_rebuilt(
    llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = save_llama(tmp_path / "damaged")
    (damaged / "model.safetensors").write_bytes(b"nonsense")
    monkeypatch.setitem(
        models.EMBEDDED, "own", lambda thorough=False: llama if thorough else damaged
    )
    assert models.load("own", device="cpu").name == "own"


def test_a_model_larger_than_the_memory_is_refused_with_both_sizes(
    llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads((llama / "config.json").read_text()) | {"vocab_size": 2**27}
    (llama / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(models, "free_memory", lambda device: 3 * 2**30)
    message = refusal(llama, device="cpu")
    assert message.endswith("need 8.0 GiB as torch.float32, cpu has 3.0 GiB free")


@pytest.mark.parametrize("error", [MemoryError(), torch.OutOfMemoryError()])
def test_running_out_of_memory_while_loading_is_reported(
    llama: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def run_out(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", run_out)
    assert "does not fit: its weights need" in refusal(llama, device="cpu")


@pytest.mark.parametrize(
    ("needed", "may_spread", "answer"),
    [(9, True, None), (11, True, "auto"), (11, False, "refused"), (31, True, "refused")],
)
def test_a_model_is_spread_over_devices_only_if_one_gpu_is_too_small(
    monkeypatch: pytest.MonkeyPatch, needed: int, may_spread: bool, answer: str | None
) -> None:
    monkeypatch.setattr(models, "_devices", lambda: ["cuda:0", "cuda:1", "cpu"])
    monkeypatch.setattr(models, "free_memory", lambda device: 10)
    target = models._Target(torch.device("cuda:0"), torch.float32, may_spread)
    source = models._Source("big", "big")
    if answer == "refused":
        with pytest.raises(PlaygroundError, match="'big' does not fit"):
            models._device_map(source, target, needed)
    else:
        assert models._device_map(source, target, needed) == answer


def test_an_unknown_device_or_dtype_lists_what_is_allowed() -> None:
    assert refusal("smollm2", device="cuda:99").startswith("no device 'cuda:99' here; there is ")
    assert refusal("smollm2", dtype="float23").endswith(
        "allowed are float32, bfloat16, float16; did you mean 'float32'?"
    )
