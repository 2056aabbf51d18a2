"""Starts the page.

Knows flags, environment variables and where the server listens. Refuses to know what is on the
page. The model is loaded in the background: the page is there at once and says what it waits for.
"""

from __future__ import annotations

import argparse
import os
import sys

# Read when gradio and huggingface_hub are imported: nobody is told what is done here.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from engine.importing import importing

with importing():
    from engine.models import trained
    from engine.models.loading import DEFAULT, EMBEDDED
    from playground import Limits, Playground, PlaygroundError
    from playground.ui.page import build
    from playground.ui.shared.model_loading import Labs
    from playground.ui.shared.theme import look

_LIMITS = {
    "prompt_characters": "the longest prompt, in characters",
    "max_new_tokens": "the most tokens one run may write",
    "rows": "the most beams, or texts sampled side by side",
    "strategies": "the most strategies in one comparison",
    "draft_tokens": "the most tokens drafted ahead in one round",
    "positions": "tokens the key/value pool holds for all runs together",
    "comparisons": "comparisons that run at the same time; others wait for their turn",
    "columns": "the most runs side by side on the page, forks included",
    "boards": "comparisons kept for visitors who fork, export or reload",
    "upload_bytes": "the largest file with traces that is opened",
    "detect_characters": "the longest text in which a watermark is looked for, in characters",
    "green_lists": "the most shuffled vocabularies drawn for one such text",
    "calibration_tokens": "the most tokens written for one calibration of a detector",
}


def main() -> None:
    """Start loading the model and serve the page until interrupted."""
    flags = parser().parse_args()
    limits = Limits(**{name: getattr(flags, name) for name in _LIMITS})
    names = dict.fromkeys([flags.model, *_names(flags.models)])
    labs = Labs(
        [*names],
        lambda name: _load(name, flags, limits),
        kept=flags.models_kept,
        open=flags.any_model,
    )
    labs.loader(labs.usual)
    build(labs, limits).launch(
        server_name=flags.host,
        server_port=flags.port,
        max_file_size=limits.upload_bytes,  # Gradio takes uploads of any size else
        enable_monitoring=False,
        run_history=False,
        footer_links=["api", "gradio", "settings"],
        mcp_server=True,
        **look(),
    )


def parser() -> argparse.ArgumentParser:
    """The command line; PLAYGROUND_<FLAG> in the environment changes a flag's default."""
    flags = argparse.ArgumentParser(
        description="Start the Decoding Playground page.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    model, host, port = (
        _default("model", DEFAULT),
        _default("host", _host()),
        _default("port", 7860),
    )
    flags.add_argument("--model", default=model, help="an embedded model, a Hub id or a folder")
    models = _default("models", ",".join(EMBEDDED))
    flags.add_argument("--models", default=models, help="further models to choose, with commas")
    flags.add_argument("--any-model", action="store_true", help="let visitors name any model")
    kept = _default("models_kept", 2)
    flags.add_argument("--models-kept", type=int, default=kept, help="models held in memory")
    flags.add_argument("--host", default=host, help="the address to listen on")
    flags.add_argument("--port", type=int, default=port, help="the port to listen on")
    drafts = _default("drafts", ",".join([*EMBEDDED, *trained.draft_names()]))
    flags.add_argument("--drafts", default=drafts, help="draft models a run may name, with commas")
    flags.add_argument(
        "--allow-custom",
        action="store_true",
        help="let visitors run decoding code that lies on this machine; never where strangers ask",
    )
    for name, words in _LIMITS.items():
        default = _default(name, getattr(Limits(), name))
        flags.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, help=words)
    return flags


def _default(flag: str, otherwise: str | int) -> str:
    # A string even for numbers: argparse converts and checks it as it does what is typed.
    return os.environ.get(f"PLAYGROUND_{flag.upper()}", str(otherwise))


def _host() -> str:
    """A Space is reached from outside its container; anywhere else this machine is enough."""
    return "0.0.0.0" if "SPACE_ID" in os.environ else "127.0.0.1"


def _names(words: str) -> list[str]:
    return [name.strip() for name in words.split(",") if name.strip()]


def _load(name: str, flags: argparse.Namespace, limits: Limits) -> Playground:
    print(f"Loading the model {name} …", flush=True)
    try:
        drafts = _names(flags.drafts)
        lab = Playground(name, limits=limits, drafts=drafts, allow_custom=flags.allow_custom)
    except PlaygroundError as error:
        print(f"The model could not be loaded: {error}", file=sys.stderr, flush=True)
        raise
    print(f"The model {lab.model.name} is ready.", flush=True)
    return lab


if __name__ == "__main__":
    main()
