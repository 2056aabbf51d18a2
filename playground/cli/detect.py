"""The watermark commands of the command line: ``python -m playground detect``.

Knows arguments, streams and exit statuses. Refuses to know how a mark is found.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from engine.errors import PlaygroundError
from engine.models import loading
from engine.settings import Limits
from engine.watermark import config, detector
from engine.watermark.bayesian import bayesian
from engine.watermark.statistics import MARKED, TOO_SHORT, UNMARKED
from playground.cli import arguments

STATUS = {MARKED: 0, UNMARKED: 1, TOO_SHORT: 3}  # 2 is what a person got wrong, as everywhere

_WORDS = """Look for a watermark in a text, without the prompt it was written from.
Prints what was found as JSON. The exit status is 0 where the text is marked, 1 where it is not,
2 where something was wrong with what was asked, 3 where the text is too short to say."""


def add_detect(commands: Any) -> argparse.ArgumentParser:
    """Put ``detect`` among the commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "detect", help="look for a watermark in a text", description=_WORDS
    )
    parser.set_defaults(command=detect)
    parser.add_argument(
        "--file", default="-", metavar="FILE", help="the text; standard input unless named"
    )
    parser.add_argument("--scheme", default="lefthash", help=" or ".join(detector.SCHEMES))
    parser.add_argument(
        "--z-threshold", type=float, default=3.0, metavar="Z", help="default %(default)s"
    )
    parser.add_argument(
        "--ignore-repeated", action="store_true", help="count each n-gram only once"
    )
    parser.add_argument("--tokens", action="store_true", help="tell every token's verdict")
    parser.add_argument("--scan", action="store_true", help="look for a marked passage inside")
    parser.add_argument(
        "--bayesian", metavar="FOLDER", help="also ask a trained detector of SynthID's marks"
    )
    return parser


def detect(options: argparse.Namespace) -> int:
    """Look for a watermark; prints JSON and gives the exit status."""
    fields = dict(arguments.assignment(text) for text in options.set)
    config.checked(options.scheme, fields)  # before a model is loaded
    if options.bayesian and options.scheme != "synthid":
        raise PlaygroundError(f"--bayesian is for --scheme synthid, not {options.scheme}")
    text, model = arguments.read(options.file), loading.load(options.model)
    found = detector.detect(
        model,
        text,
        scheme=options.scheme,
        z_threshold=options.z_threshold,
        ignore_repeated=options.ignore_repeated,
        limits=Limits(),
        **fields,
    )
    told = found.to_dict(tokens=options.tokens)
    if options.scan:
        told["scan"] = detector.scan(found).to_dict()
    if options.bayesian:
        told["bayesian"] = bayesian(model, text, options.bayesian, **fields)._asdict()
    print(json.dumps(told))
    return STATUS[found.verdict]
