"""Starts the page.

``python app.py --help`` lists the flags; the environment variable ``PLAYGROUND_<FLAG>`` changes a
flag's default. The model loads in the background: the page opens at once and shows the progress.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from dataclasses import fields
from functools import partial

# OpenMP threads that spin while they wait take a core from the browser on the same machine: a tick
# then takes ten times as long. torch reads this on import.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# No usage statistics; gradio and huggingface_hub read these on import.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

# A ZeroGPU Space of Hugging Face has this package, which must be imported before torch.
if os.environ.get("SPACES_ZERO_GPU"):
    from spaces import GPU
else:
    GPU = None

import transformers

from engine.models import trained
from engine.models.loading import DEFAULT, DTYPES, EMBEDDED, load
from playground import Limits, Playground, PlaygroundError
from playground.ui.page import build
from playground.ui.shared.model_loading import Labs
from playground.ui.shared.monitoring import LogFormatter
from playground.zero_gpu import ZeroGpuPlayground


def main() -> None:
    """Start loading the model and serve the page until interrupted."""
    flags = parser().parse_args()
    transformers.logging.disable_progress_bar()
    _log(as_json=flags.log_format == "json")
    limits = Limits(**{limit.name: getattr(flags, limit.name) for limit in fields(Limits)})
    names = dict.fromkeys([flags.model, *_names(flags.models)])
    labs = Labs(
        [*names],
        lambda name: _load(name, flags, limits),
        max_loaded=flags.models_kept,
        allow_any=flags.any_model,
    )
    loader = labs.loader(labs.default)
    if GPU:
        loader.lab()  # ZeroGPU expects the model on its device when the server starts
    site = build(labs, limits)
    ended = _end_signal()
    site.launch(
        server_name=flags.host,
        server_port=flags.port,
        max_file_size=limits.upload_bytes,  # Gradio has no limit by default
        enable_monitoring=False,
        run_history=False,
        footer_links=["api", "gradio", "settings"],
        mcp_server=True,
        auth=_auth(),
        share=flags.share,
        prevent_thread_lock=True,
    )
    ended.wait()
    site.close()


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    flags = argparse.ArgumentParser(
        description="Start the Decoding Playground page.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    model, host, port = (
        _default("model", DEFAULT),
        _default("host", _host()),
        _default("port", 7860),
    )
    flags.add_argument("--model", default=model, help="embedded model, local folder or Hub id")
    models = _default("models", ",".join(EMBEDDED))
    flags.add_argument("--models", default=models, help="further models on offer, comma-separated")
    _add_switch(flags, "any-model", "let visitors load any model")
    kept = _default("models_kept", 2)
    flags.add_argument("--models-kept", type=int, default=kept, help="most models in memory")
    flags.add_argument("--device", default=_default("device", "") or None, help="such as cuda:1")
    flags.add_argument("--dtype", default=_default("dtype", "") or None, help=", ".join(DTYPES))
    flags.add_argument("--host", default=host, help="address to listen on")
    flags.add_argument("--port", type=int, default=port, help="port to listen on")
    drafts = _default("drafts", ",".join([*EMBEDDED, *trained.draft_names()]))
    flags.add_argument("--drafts", default=drafts, help="draft models on offer, comma-separated")
    _add_switch(
        flags,
        "allow-custom",
        "let visitors run decoding code from folders on this machine; "
        "do not enable on a public server",
    )
    _add_switch(flags, "share", "create a public link through Gradio's servers")
    formats = ("text", "json")
    flags.add_argument(
        "--log-format", choices=formats, default=_default("log_format", "text"), help="of log lines"
    )
    for limit in fields(Limits):
        flag, default = limit.name.replace("_", "-"), _default(limit.name, limit.default)
        kind = type(limit.default)
        flags.add_argument(f"--{flag}", type=kind, default=default, help=limit.metadata["help"])
    return flags


def _add_switch(flags: argparse.ArgumentParser, flag: str, help: str) -> None:
    """Add a flag that is on or off; ``--no-…`` overrides an environment variable."""
    on = _default(flag.replace("-", "_"), "off").lower() in ("1", "on", "true", "yes")
    action = argparse.BooleanOptionalAction
    flags.add_argument(f"--{flag}", action=action, default=on, help=help)


def _default(flag: str, fallback: str | float) -> str:
    # A string even for numbers: argparse then converts and checks it like a flag.
    return os.environ.get(f"PLAYGROUND_{flag.upper()}", str(fallback))


def _host() -> str:
    """All interfaces on a Hugging Face Space, whose container needs it; else this machine only."""
    return "0.0.0.0" if "SPACE_ID" in os.environ else "127.0.0.1"


def _end_signal() -> threading.Event:
    """An event that is set by SIGTERM or Ctrl+C; a second signal ends the process at once."""
    ended = threading.Event()

    def end(number: int, _: object) -> None:
        ended.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return ended


def _auth() -> tuple[str, str] | None:
    """User name and password of all visitors. Not a flag: other users of a machine see those."""
    password = os.environ.get("PLAYGROUND_PASSWORD")
    return (os.environ.get("PLAYGROUND_USER", "visitor"), password) if password else None


def _log(*, as_json: bool) -> None:
    """Log to standard error: a line for each comparison, without its prompt and texts."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter(as_json=as_json))
    logger = logging.getLogger("playground")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


def _names(value: str) -> list[str]:
    return [name.strip() for name in value.split(",") if name.strip()]


def _load(name: str, flags: argparse.Namespace, limits: Limits) -> Playground:
    print(f"Loading {name} …", flush=True)
    try:
        drafts = _names(flags.drafts)
        model = load(name, device=flags.device, dtype=flags.dtype)
        kind = partial(ZeroGpuPlayground, gpu=GPU) if GPU else Playground
        lab = kind(model, limits=limits, drafts=drafts, allow_custom=flags.allow_custom)
    except PlaygroundError as error:
        print(f"Cannot load the model: {error}", file=sys.stderr, flush=True)
        raise
    print(f"{lab.model.name} is ready.", flush=True)
    return lab


if __name__ == "__main__":
    main()
