"""The command ``python -m playground calibrate``: a detector's worth as a table, CSV and JSON.

Knows arguments, a progress bar and how figures are laid out. Refuses to know how they come about.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

from engine.errors import PlaygroundError
from engine.settings import Limits
from engine.watermark import config
from playground.cli import arguments
from playground.lab import Playground
from playground.watermarks.calibrate import Calibration, CalibrationSpec, Progress, calibrate
from playground.watermarks.calibration_result import AtLength, Cost
from playground.watermarks.calibration_spec import check
from playground.watermarks.roc import OperatingPoint, Rate

Number = TypeVar("Number", int, float)

_WORDS = """Measure what a watermark detector is worth: have the model write marked texts, hold them
against the human-written ones that come with the project, and print how many are found, how many
false alarms there are, and what the mark costs in perplexity. Texts are kept in the cache folder:
what was interrupted goes on where it was, and another threshold costs nothing."""


def add_calibrate(commands: Any) -> argparse.ArgumentParser:
    """Put ``calibrate`` among the commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "calibrate", help="measure what a watermark detector is worth", description=_WORDS
    )
    parser.set_defaults(command=run)
    usual = CalibrationSpec()
    parser.add_argument("--scheme", default=usual.scheme, help=" or ".join(config.SCHEMES))
    whole = (
        ("texts", "marked texts"),
        ("length", "tokens of each"),
        ("others", "texts for each further bias"),
        ("keys", "keys under which human texts are scored"),
        ("seed", "where the random numbers start"),
    )
    for name, words in whole:
        default = getattr(usual, name)
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{words}; {default}")
    lengths = ",".join(map(str, usual.lengths))
    parser.add_argument("--lengths", default=lengths, metavar="N,...", help="lengths to tell of")
    parser.add_argument(
        "--biases", metavar="X,...", help="biases to tell the cost of; 0 is no mark"
    )
    parser.add_argument("--z-threshold", type=float, default=usual.threshold, metavar="Z")
    parser.add_argument("--with-repeats", action="store_true", help="count repeated n-grams too")
    parser.add_argument(
        "--sample",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of sampling, such as temperature=0.7; --set is for the watermark's own",
    )
    parser.add_argument("--csv", metavar="FILE", help="write every score; - is standard output")
    parser.add_argument("--json", metavar="FILE", help="write everything; - is standard output")
    parser.add_argument(
        "--no-cache", action="store_true", help="keep nothing, and use nothing kept"
    )
    return parser


def run(options: argparse.Namespace) -> int:
    """Measure, and print a table."""
    spec = _spec(options)
    check(spec, Limits())  # before a model is loaded
    found = _shown(calibrate(Playground(options.model), spec, keep=not options.no_cache))
    if options.csv:
        arguments.write(options.csv, found.to_csv())
    if options.json:
        arguments.write(options.json, found.to_json())
    if "-" not in (options.csv, options.json):
        print("\n".join(table(found)))
    return 0


def _spec(options: argparse.Namespace) -> CalibrationSpec:
    fields = dict(arguments.assignment(text) for text in options.set)
    biases = options.biases
    if biases is None:  # the usual ones, where the scheme has such a thing
        biases = "0,1,2,4" if "bias" in config.settings_for(options.scheme) else "0"
    return CalibrationSpec(
        scheme=options.scheme,
        fields=fields,
        texts=options.texts,
        length=options.length,
        lengths=_numbers("lengths", options.lengths, int),
        threshold=options.z_threshold,
        ignore_repeated=not options.with_repeats,
        biases=_numbers("biases", biases, float),
        others=options.others,
        keys=options.keys,
        seed=options.seed,
        settings=dict(arguments.assignment(text) for text in options.sample),
    )


def _numbers(name: str, text: str, kind: Callable[[str], Number]) -> tuple[Number, ...]:
    try:
        return tuple(kind(one) for one in text.split(",") if one.strip())
    except ValueError as error:
        raise PlaygroundError(f"--{name} is {text!r}; it must be numbers with commas") from error


def _shown(steps: Iterator[Progress]) -> Calibration:
    """Follow a calibration with a bar for each of its stages."""
    bar, stage, result = tqdm(disable=True), "", None
    for step in steps:
        if step.stage != stage:
            bar.close()
            stage, result = step.stage, step.result
            quiet = True if result else None
            bar = tqdm(total=step.total, desc=stage, unit=step.unit[:-1], disable=quiet)
        bar.update(step.done - bar.n)
    bar.close()
    assert result is not None, "nobody stops it here but by an exception"
    return result


def table(found: Calibration) -> Iterator[str]:
    """A calibration as lines to read."""
    spec, threshold = found.spec, found.threshold
    fields = ", ".join(f"{name} {value}" for name, value in spec["fields"].items())
    yield (
        f"# {found.model}, {spec['scheme']}{', ' if fields else ''}{fields}: {spec['texts']} marked"
        f" texts of {spec['length']} tokens; {found.human_scores} scores of {found.human_texts}"
        f" human-written texts; intervals hold 95 times in 100"
    )
    yield ""
    asked = "".join(f"  {f'found at FPR {one.asked:.1%}':<26}" for one in _operating(found))
    yield f"length  mean z  {f'found at z > {threshold:g}':<26}{'false alarms':<26}AUC     {asked}"
    yield from (_at_length(told) for told in found.by_length)
    if not all(one.resolved for one in _operating(found)):
        yield "* too few human-written texts to show such a rate; here none is above the threshold"
    yield ""
    yield f"decoded and encoded again: {_rate(found.as_text)} found"
    for told in found.needed:
        need = f"more than {spec['length']}" if told.length is None else told.length
        yield f"tokens needed to find {told.power:.0%}: {need}"
    yield ""
    yield f"bias    perplexity              mean z  found at z > {threshold:g}"
    yield from (_cost(told) for told in found.costs)


def _operating(found: Calibration) -> tuple[OperatingPoint, ...]:
    return found.by_length[-1].operating


def _at_length(told: AtLength) -> str:
    points = "".join(
        f"  {_rate(one.true_positives) + ('' if one.resolved else ' *'):<26}"
        for one in told.operating
    )
    return (
        f"{told.length:>6}  {told.mean:>6.2f}  {_rate(told.found):<26}"
        f"{_rate(told.false_alarms):<26}{told.auc:<8.5f}{points}"
    )


def _cost(told: Cost) -> str:
    bias = "marked" if told.bias is None else "none" if told.bias == 0 else f"{told.bias:g}"
    interval = f"{told.perplexity:.2f} ({told.low:.2f} to {told.high:.2f})"
    return f"{bias:<6}  {interval:<22}  {told.mean:>6.2f}  {_rate(told.found)}"


def _rate(rate: Rate) -> str:
    return f"{rate.share:.4f} ({rate.low:.4f}-{rate.high:.4f})"
