"""The command ``space``: writes a folder that can be pushed as a Hugging Face Space."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

from engine.errors import PlaygroundError
from engine.models import loading
from engine.settings import Limits

_DESCRIPTION = """Write a folder with everything that a Hugging Face Space needs: the code, pinned
requirements, the front matter in README.md, and a start file with the chosen models and limits.
Variables of the Space with the same names (PLAYGROUND_…) override these."""

_ROOT = Path(__file__).parents[2]
_FOLDERS = ("engine", "models", "playground", "strategies", "visualizers")
_FILES = ("app.py", "requirements.txt", "LICENSE")

# For strangers on two cores. What is not listed keeps the default of ``app.py``.
_PUBLIC = {
    "prompt_characters": 4_000,
    "prompt_tokens": 1_000,
    "max_new_tokens": 120,
    "rows": 8,
    "strategies": 4,
    "seconds": 120.0,
    "comparisons": 4,
    "waiting": 64,
    "calibration_tokens": 20_000,
}

_ZERO_GPU_TORCH = "torch==2.11.0"

_ABOUT = """Runs decoding strategies side by side on a language model and shows, from inside the
run, why each token was chosen."""

_START = '''"""Starts the page with the settings of this Space; its variables override them."""

import os

SETTINGS = {settings}
for name, value in SETTINGS.items():
    os.environ.setdefault(name, value)

from app import main

main()
'''


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "space",
        help="write a folder for a Hugging Face Space",
        description=_DESCRIPTION,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.set_defaults(command=run)
    parser.add_argument("folder", type=Path, metavar="OUT", help="a folder that does not exist yet")
    parser.add_argument("--title", default="Decoding Playground", help="of the Space")
    parser.add_argument("--model", default=loading.DEFAULT, help="embedded model or Hub id")
    parser.add_argument(
        "--hardware",
        default="cpu-basic",
        help="suggested to those who copy it; zero-a10g writes a Space for ZeroGPU",
    )
    for limit in fields(Limits):
        parser.add_argument(
            f"--{limit.name.replace('_', '-')}",
            type=type(limit.default),
            default=_PUBLIC.get(limit.name, limit.default),
            help=limit.metadata["help"],
        )


def run(options: argparse.Namespace) -> None:
    """Write the folder."""
    folder: Path = options.folder
    if folder.exists():
        raise PlaygroundError(f"{str(folder)!r} exists already; give the name of a new folder")
    ignored = shutil.ignore_patterns("__pycache__")
    for name in _FOLDERS:
        shutil.copytree(_ROOT / name, folder / name, ignore=ignored)
    for name in _FILES:
        shutil.copy(_ROOT / name, folder / name)
    if options.hardware.startswith("zero"):
        _pin_torch(folder / "requirements.txt")
    limits = {limit.name: getattr(options, limit.name) for limit in fields(Limits)}
    settings = {"model": options.model, "models": options.model, "models_kept": 1, **limits}
    variables = {f"PLAYGROUND_{name.upper()}": str(value) for name, value in settings.items()}
    lines = "".join(f"    {name!r}: {value!r},\n" for name, value in variables.items())
    (folder / "start.py").write_text(_START.format(settings=f"{{\n{lines}}}"), encoding="utf-8")
    (folder / "README.md").write_text(_readme(options), encoding="utf-8")
    print(f"{folder} is ready. Push it to a new Space with the Gradio SDK.")


def _pin_torch(requirements: Path) -> None:
    """Pin the newest torch that ZeroGPU supports."""
    lines = requirements.read_text(encoding="utf-8").splitlines()
    pinned = [_ZERO_GPU_TORCH if line.startswith("torch==") else line for line in lines]
    requirements.write_text("\n".join(pinned) + "\n", encoding="utf-8")


def _readme(options: argparse.Namespace) -> str:
    """The front matter of this repository's README with the title, start file and hardware."""
    _, front, _ = (_ROOT / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    changed = {
        "title": json.dumps(options.title, ensure_ascii=False),  # a quoted string of YAML
        "app_file": "start.py",
        "suggested_hardware": json.dumps(options.hardware),
        "startup_duration_timeout": "1h",  # the first start downloads the model
    }
    kept = [line for line in front.splitlines() if line.partition(":")[0] not in changed]
    lines = [*(f"{name}: {value}" for name, value in changed.items()), *kept]
    return "\n".join(["---", *lines, "---", "", f"# {options.title}", "", _ABOUT, ""])
