"""The command ``calibrate``: measures a watermark detector and prints its rates."""

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
from playground.watermarks.calibrate import calibrate
from playground.watermarks.calibration_result import AtLength, Calibration, Cost, Progress
from playground.watermarks.calibration_spec import CalibrationSpec, check
from playground.watermarks.roc import Rate

Number = TypeVar("Number", int, float)

_DESCRIPTION = """Measure a watermark detector: the model writes marked texts, which are compared
with the human-written texts that come with the project. Prints the share of marked texts that are
found, the share of false alarms, and the cost of the mark in perplexity. Texts are cached: an
interrupted calibration resumes, and another threshold needs no new texts."""


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "calibrate", help="measure a watermark detector", description=_DESCRIPTION
    )
    parser.set_defaults(command=run)
    defaults = CalibrationSpec()
    parser.add_argument("--scheme", default=defaults.scheme, help=" or ".join(config.SCHEMES))
    numbers = (
        ("texts", "number of marked texts"),
        ("length", "length of each in tokens"),
        ("others", "number of texts for each further bias"),
        ("keys", "number of keys under which human texts are scored"),
        ("seed", "random seed"),
    )
    for name, help in numbers:
        default = getattr(defaults, name)
        parser.add_argument(
            f"--{name}", type=int, default=default, help=f"{help}; default {default}"
        )
    lengths = ",".join(map(str, defaults.lengths))
    parser.add_argument(
        "--lengths", default=lengths, metavar="N,...", help="further lengths to report"
    )
    parser.add_argument(
        "--biases", metavar="X,...", help="biases to report the cost of; 0 is no watermark"
    )
    parser.add_argument("--z-threshold", type=float, default=defaults.threshold, metavar="Z")
    parser.add_argument("--with-repeats", action="store_true", help="count repeated n-grams too")
    parser.add_argument(
        "--sample",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of sampling, such as temperature=0.7",
    )
    parser.add_argument("--csv", metavar="FILE", help="write every score; - is standard output")
    parser.add_argument("--json", metavar="FILE", help="write everything; - is standard output")
    parser.add_argument("--no-cache", action="store_true", help="neither read nor write the cache")
    arguments.add_model(parser)
    arguments.add_settings(parser, "a setting of the watermark, such as bias=4")


def run(options: argparse.Namespace) -> None:
    """Calibrate; print the table or write the files."""
    spec = _spec(options)
    check(spec, Limits())  # before a model is loaded
    result = _follow(calibrate(Playground(options.model), spec, keep=not options.no_cache))
    if options.csv:
        arguments.write(options.csv, result.to_csv())
    if options.json:
        arguments.write(options.json, result.to_json())
    if "-" not in (options.csv, options.json):
        print("\n".join(_table(result)))


def _spec(options: argparse.Namespace) -> CalibrationSpec:
    biases = options.biases
    if biases is None:
        biases = "0,1,2,4" if "bias" in config.settings_for(options.scheme) else "0"
    return CalibrationSpec(
        scheme=options.scheme,
        fields=arguments.settings(options),
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
        return tuple(kind(item) for item in text.split(",") if item.strip())
    except ValueError as error:
        raise PlaygroundError(
            f"--{name} is {text!r}; it must be numbers separated by commas"
        ) from error


def _follow(steps: Iterator[Progress]) -> Calibration:
    """Run a calibration with a progress bar for each stage."""
    bar, stage, result = tqdm(disable=True), "", None
    for step in steps:
        if step.stage != stage:
            bar.close()
            stage, result = step.stage, step.result
            hidden = True if result else None
            bar = tqdm(total=step.total, desc=stage, unit=step.unit[:-1], disable=hidden)
        bar.update(step.done - bar.n)
    bar.close()
    assert result is not None  # it ends without one only if `stop` is set
    return result


def _table(result: Calibration) -> Iterator[str]:
    """A calibration as lines of text."""
    spec, threshold = result.spec, result.threshold
    fields = ", ".join(f"{name} {value}" for name, value in spec["fields"].items())
    yield (
        f"# {result.model}, {spec['scheme']}{', ' if fields else ''}{fields}: {spec['texts']}"
        f" marked texts of {spec['length']} tokens; {result.human_scores} scores of"
        f" {result.human_texts} human-written texts; brackets: 95 % confidence interval"
    )
    yield ""
    points = result.by_length[-1].operating
    columns = "".join(f"  {f'found at FPR {point.target:.1%}':<26}" for point in points)
    found = f"found at z > {threshold:g}"
    yield f"length  mean z  {found:<26}{'false alarms':<26}AUC     {columns}"
    yield from map(_at_length, result.by_length)
    if not all(point.resolved for point in points):
        yield "* too few human-written texts to measure such a rate; none is above the threshold"
    yield ""
    yield f"decoded and encoded again: {_rate(result.as_text)} found"
    for needed in result.needed:
        length = f"more than {spec['length']}" if needed.length is None else needed.length
        yield f"tokens needed to find {needed.power:.0%}: {length}"
    yield ""
    yield f"bias    perplexity              mean z  {found}"
    yield from map(_cost, result.costs)


def _at_length(row: AtLength) -> str:
    points = "".join(
        f"  {_rate(point.true_positives) + ('' if point.resolved else ' *'):<26}"
        for point in row.operating
    )
    return (
        f"{row.length:>6}  {row.mean:>6.2f}  {_rate(row.found):<26}"
        f"{_rate(row.false_alarms):<26}{row.auc:<8.5f}{points}"
    )


def _cost(cost: Cost) -> str:
    bias = "marked" if cost.bias is None else "none" if cost.bias == 0 else f"{cost.bias:g}"
    interval = f"{cost.perplexity:.2f} ({cost.low:.2f} to {cost.high:.2f})"
    return f"{bias:<6}  {interval:<22}  {cost.mean:>6.2f}  {_rate(cost.found)}"


def _rate(rate: Rate) -> str:
    return f"{rate.share:.4f} ({rate.low:.4f}-{rate.high:.4f})"
