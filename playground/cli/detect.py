"""The command ``detect``: looks for a watermark in a text."""

from __future__ import annotations

import argparse
import json
from typing import Any

from engine.errors import PlaygroundError
from engine.models import loading
from engine.settings import Limits
from engine.watermark import config, detector
from engine.watermark.bayesian import bayesian
from engine.watermark.statistics import MARKED, TOO_SHORT, UNMARKED, Z_THRESHOLD
from playground.cli import arguments

STATUS = {MARKED: 0, UNMARKED: 1, TOO_SHORT: 3}  # 2 is invalid input, as for every command

_DESCRIPTION = """Look for a watermark in a text, without the prompt it was written from.
Prints the result as JSON. Exit status: 0 if the text is marked, 1 if it is not, 2 for invalid
input, 3 if the text is too short to decide."""


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "detect", help="look for a watermark in a text", description=_DESCRIPTION
    )
    parser.set_defaults(command=run)
    parser.add_argument(
        "--file", default="-", metavar="FILE", help="the text; default: standard input"
    )
    parser.add_argument("--scheme", default="lefthash", help=" or ".join(detector.SCHEMES))
    parser.add_argument(
        "--z-threshold", type=float, default=Z_THRESHOLD, metavar="Z", help="default %(default)s"
    )
    parser.add_argument(
        "--ignore-repeated", action="store_true", help="count each n-gram only once"
    )
    parser.add_argument("--tokens", action="store_true", help="include every token's verdict")
    parser.add_argument("--scan", action="store_true", help="look for a marked passage inside")
    parser.add_argument(
        "--bayesian", metavar="FOLDER", help="also run a trained Bayesian detector for SynthID"
    )
    arguments.add_model(parser)
    arguments.add_settings(parser, "a setting of the watermark, such as hashing_key=7")


def run(options: argparse.Namespace) -> int:
    """Print the result as JSON; return the verdict as the exit status."""
    fields = arguments.settings(options)
    config.build_config(options.scheme, fields)  # before a model is loaded
    if options.bayesian and options.scheme != "synthid":
        raise PlaygroundError(f"--bayesian is for --scheme synthid, not {options.scheme}")
    text, model = arguments.read(options.file), loading.load(options.model)
    detection = detector.detect(
        model,
        text,
        scheme=options.scheme,
        z_threshold=options.z_threshold,
        ignore_repeated=options.ignore_repeated,
        limits=Limits(),
        **fields,
    )
    result = detection.to_dict(tokens=options.tokens)
    if options.scan:
        result["scan"] = detector.scan(detection).to_dict()
    if options.bayesian:
        result["bayesian"] = bayesian(model, text, options.bayesian, **fields)._asdict()
    print(json.dumps(result))
    return STATUS[detection.verdict]
