"""The command ``models``: lists the embedded models and shows how a model runs on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from engine.models import embedded, loading, trained
from playground.lab import Playground

_DESCRIPTION = """List the embedded models and the draft models trained for them. For each embedded
model that is already in the cache, and for each MODEL named, load it and print the device, the
backend, the accelerations in use, and the reason for each one that is not."""


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "models", help="list models and how each one runs", description=_DESCRIPTION
    )
    parser.set_defaults(command=run)
    parser.add_argument("models", metavar="MODEL", nargs="*", help="a name, folder or Hub id")


def run(options: argparse.Namespace) -> None:
    """Print the list, or the models named."""
    if options.models:
        for name in options.models:
            print("\n".join(_loaded(name)))
        return
    for model in loading.EMBEDDED_MODELS:
        name = model.name + (" (default)" if model.name == loading.DEFAULT else "")
        if embedded.is_intact(model.folder):
            print("\n".join(_loaded(model.name, name)))
        else:
            print(f"{name}\n    not downloaded; it is fetched the first time it is used")
        for draft in trained.drafts_for(model.name):
            print(f"    draft model: {draft}")
    print("any other model: a local folder, a GGUF file or a Hub id")


def _loaded(name: str, title: str | None = None) -> Iterator[str]:
    lab = Playground(name)
    module, status = lab.model.module, lab.backend_status
    yield title or lab.model.name
    yield f"    device: {module.device}, {str(module.dtype).removeprefix('torch.')}"
    reason = f", because {status.reason}" if status.reason else ""
    yield f"    backend: {status.backend}{reason}"
    yield f"    accelerations: {', '.join(status.accelerations) or 'none'}"
    for fallback in status.fallbacks:
        yield f"    not in use: {fallback}"
