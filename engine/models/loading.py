"""Loads a language model by name: an embedded one, a local folder or GGUF file, a Hub repository.

Refuses code from repositories and pickled weights: both can run whatever their author wrote.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from huggingface_hub import errors as hub
from huggingface_hub import hf_hub_download
from transformers import PreTrainedModel
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from engine.errors import PlaygroundError, did_you_mean
from engine.models import embedded, trained
from engine.models.memory import free_memory
from engine.models.model import Model
from engine.models.smollm2 import SMOLLM2
from engine.models.stories15m import STORIES15M

DEFAULT = "smollm2"
EMBEDDED_MODELS = (SMOLLM2, STORIES15M)
EMBEDDED: dict[str, Callable[..., Path]] = {
    model.name: partial(embedded.prepare, model) for model in EMBEDDED_MODELS
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# Parts of transformers' messages, and what they mean.
_MEANINGS = {
    "trust_remote_code": "it needs code from its own repository, which is never run here",
    "does not recognize this architecture": f"transformers {transformers.__version__} lacks it",
    "Unrecognized configuration class": "it is not a model that generates text",
    "can't allocate memory": "it does not fit into memory",
}


class _Source(NamedTuple):
    name: str  # as given
    where: str  # a folder, or a Hub id
    gguf: str | None = None  # the file in that folder


class _Target(NamedTuple):
    device: torch.device
    dtype: torch.dtype
    may_spread: bool  # over several devices: only if no device was given


def load(
    name: str = DEFAULT, *, device: str | None = None, dtype: str | torch.dtype | None = None
) -> Model:
    """Load a model on the best device of this machine, or on the one given, ready to generate."""
    if name in trained.draft_names():
        return trained.draft(load(trained.target_of_draft(name), device=device, dtype=dtype))
    target, source = _target(device, dtype), _find(name)
    try:
        return _read(source, target)
    except PlaygroundError as error:
        if name not in EMBEDDED or error.__cause__ is None:
            raise
    # The files have the right sizes but cannot be read: compare contents, rebuild what differs.
    return _read(_Source(name, str(EMBEDDED[name](thorough=True))), target)


def _find(name: str) -> _Source:
    path = Path(name).expanduser()
    if name in EMBEDDED:
        return _Source(name, str(EMBEDDED[name]()))
    if name and path.is_dir():
        return _Source(name, str(path), _gguf_in(path))
    if path.suffix == ".gguf" and path.is_file():
        return _Source(name, str(path.parent), path.name)
    if not name or name.startswith((".", "~", os.sep)):
        raise _unknown(name, "there is no such folder")
    if "/" not in name and did_you_mean(name, EMBEDDED):  # do not wait for the Hub
        raise _unknown(name, "there is no such embedded model")
    return _Source(name, name)


def _unknown(name: str, why: str) -> PlaygroundError:
    parent, near = Path(name).parent, [*EMBEDDED, *trained.draft_names()]
    with suppress(OSError):
        folders = (path.name for path in parent.expanduser().iterdir() if path.is_dir())
        near += [str(parent / folder) for folder in folders if not folder.startswith(".")]
    return PlaygroundError(
        f"cannot find model {name!r}: {why}; allowed are {', '.join(EMBEDDED)} (embedded), a local "
        f"folder, or a Hub id like 'Qwen/Qwen3-0.6B'{did_you_mean(name, near)}"
    )


def _gguf_in(folder: Path) -> str | None:
    """The folder's GGUF file if it has no safetensors; a folder without weights is refused."""
    if any(folder.glob("*.safetensors")):
        return None
    files = sorted(path.name for path in folder.glob("*.gguf"))
    if len(files) == 1:
        return files[0]
    pickled = [path.name for path in folder.iterdir() if path.suffix in {".bin", ".pt", ".pth"}]
    found = ", ".join(files) or (f"pickled {', '.join(pickled)}" if pickled else "neither")
    raise PlaygroundError(f"{str(folder)!r} must hold safetensors or one GGUF, and holds {found}")


def _read(source: _Source, target: _Target) -> Model:
    options = {"trust_remote_code": False, "gguf_file": source.gguf}
    try:
        config = transformers.AutoConfig.from_pretrained(source.where, **options)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source.where, **options)
        if not Path(source.where).is_dir():
            _require_safetensors(source.where)
        return Model(source.name, _read_weights(source, target, config, options), tokenizer)
    except PlaygroundError:
        raise
    except Exception as error:  # a checkpoint can make the libraries raise anything
        raise _explained(source, error) from error


def _require_safetensors(hub_id: str) -> None:
    """Fetch the first file of a model's safetensors from the Hub; raise if there are none.

    For a repository that has only pickled weights transformers would request a public conversion.
    """
    for file in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME):
        with suppress(hub.RemoteEntryNotFoundError):
            hf_hub_download(hub_id, file)
            return
    raise PlaygroundError(
        f"cannot load {hub_id!r}: it has no safetensors, and pickled weights can run code"
    )


def _read_weights(
    source: _Source, target: _Target, config: Any, options: dict[str, Any]
) -> PreTrainedModel:
    auto: Any = transformers.AutoModelForCausalLM
    if config.is_encoder_decoder:
        auto = transformers.AutoModelForSeq2SeqLM
    needed = _weight_bytes(auto, config, target.dtype)
    device_map = _device_map(source, target, needed)
    # GGUF as dense weights: only transformers' own layers know its blocks.
    dense = {"quantization_config": transformers.GgufConfig(dequantize=True)}
    options |= dense if source.gguf else {"use_safetensors": True}
    options |= {"config": config, "dtype": target.dtype, "device_map": device_map}
    try:
        module, info = auto.from_pretrained(source.where, output_loading_info=True, **options)
        if missing := sorted(info["missing_keys"]):
            lack = f"{len(missing)} weights of {source.name!r} are missing"
            raise PlaygroundError(f"{lack} (first {missing[0]}): they would be random numbers")
        ready: PreTrainedModel = module if device_map else module.to(target.device)
        ready.requires_grad_(False)  # `from_pretrained` has called `eval` already
        return ready
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise _too_big(source, target, needed) from error


def _weight_bytes(auto: Any, config: Any, dtype: torch.dtype) -> int:
    """The size of the weights, computed without allocating them; 0 if it is unknown."""
    if getattr(config, "quantization_config", None):
        return 0
    with torch.device("meta"):
        module = auto.from_config(config, dtype=dtype)
    return sum(weight.numel() * weight.element_size() for weight in module.parameters())


def _device_map(source: _Source, target: _Target, needed: int) -> str | None:
    """ "auto" for a model that one GPU cannot hold but the machine can, else None."""
    free = free_memory(target.device)
    if free is None or needed <= free:
        return None
    everywhere = sum(free_memory(torch.device(name)) or 0 for name in _devices())
    if target.may_spread and target.device.type == "cuda" and needed <= everywhere:
        return "auto"
    raise _too_big(source, target, needed)


def _too_big(source: _Source, target: _Target, needed: int) -> PlaygroundError:
    free = free_memory(target.device)
    has = "less" if free is None else f"{free / 2**30:.1f} GiB"
    need = f"its weights need {needed / 2**30:.1f} GiB as {target.dtype}"
    return PlaygroundError(f"{source.name!r} does not fit: {need}, {target.device} has {has} free")


def _devices() -> list[str]:
    """The devices of this machine, the best one first."""
    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    return [*gpus, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]


def _target(device: str | None, dtype: str | torch.dtype | None) -> _Target:
    known = _devices()
    name = known[0] if device is None else "cuda:0" if device == "cuda" else device
    if name not in known:
        near = did_you_mean(name, known)
        raise PlaygroundError(f"no device {device!r} here; there is {', '.join(known)}{near}")
    place = torch.device(name)
    native = place.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    precision = str(dtype or ("bfloat16" if native else "float32")).removeprefix("torch.")
    if precision not in DTYPES:
        near = did_you_mean(precision, DTYPES)
        raise PlaygroundError(f"unknown dtype {precision!r}; allowed are {', '.join(DTYPES)}{near}")
    return _Target(place, DTYPES[precision], may_spread=device is None)


def _explained(source: _Source, error: BaseException) -> PlaygroundError:
    """A message for a failure; the Hub's own errors are causes of other exceptions."""
    name, cause = source.name, None if Path(source.where).is_dir() else error
    while cause is not None:
        if isinstance(cause, hub.GatedRepoError):
            return PlaygroundError(f"{name!r} is gated: ask for access on its page on the Hub")
        if isinstance(cause, hub.RepositoryNotFoundError | hub.HFValidationError):
            return _unknown(name, "the Hub does not have it, or keeps it private")
        if isinstance(cause, hub.LocalEntryNotFoundError | hub.OfflineModeIsEnabled):
            return _unknown(name, "it is not in the Hub's cache, and the Hub cannot be reached")
        cause = cause.__cause__ or cause.__context__
    text = str(error)
    meaning = next((words for said, words in _MEANINGS.items() if said in text), None)
    reason = meaning or f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
    return PlaygroundError(f"cannot load {name!r}: {reason}")
