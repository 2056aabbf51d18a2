"""Runs a drafter on a grid of its settings to find the fastest on a prompt.

The axes depend on the strategy: draft length and confidence threshold; for early exit also the exit
layer; for prompt lookup the draft length and the n-gram size; for Medusa the size and depth of the
tree. Each cell is a run of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from engine.errors import PlaygroundError
from engine.models import trained
from engine.prompt import Chat
from engine.settings import Limits
from playground.lab import Playground
from playground.speculation.drafters import Drafter, plain_baseline
from playground.speculation.race import Lane, Race, race
from playground.stopping import Stop

LENGTHS = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Axis:
    """One setting of a grid, with the title to show and its values."""

    setting: str
    title: str
    values: tuple[Any, ...]


_LENGTH = Axis("num_assistant_tokens", "draft length", LENGTHS)
_THRESHOLD = Axis(
    "assistant_confidence_threshold", "confidence threshold", (0.0, 0.2, 0.4, 0.6, 0.8)
)
_LOOKUP_LENGTH = Axis("prompt_lookup_num_tokens", "draft length", (*LENGTHS, 16))
_NGRAM = Axis("max_matching_ngram_size", "matching tokens", (1, 2, 3))
_TREE = Axis("medusa_tokens", "tokens in the tree", (4, 8, 16, 32))
_DEPTH = Axis("medusa_depth", "depth of the tree", (1, 2, 3, 4))
_EXIT = "assistant_early_exit"


@dataclass(frozen=True)
class Cell:
    """One run: the value of each axis, and the result; None if it could not run."""

    values: tuple[Any, ...]
    tokens_per_second: float | None
    compression: float | None
    acceptance: float | None
    error: str | None = None


@dataclass(frozen=True)
class Sweep:
    """The cells of a grid, and the speed of plain decoding on the same prompt."""

    drafter: Drafter
    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    plain: float | None  # tokens per second

    @property
    def best(self) -> Cell | None:
        """The fastest cell."""
        ran = [cell for cell in self.cells if cell.tokens_per_second]
        return max(ran, key=lambda cell: cell.tokens_per_second or 0.0, default=None)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the best cell."""
        best = self.best
        names = [axis.setting for axis in self.axes]
        return dict(zip(names, best.values, strict=True)) if best else {}


@dataclass(frozen=True)
class Progress:
    """The progress of a sweep, with the cells so far; the last one is ``over``."""

    done: int
    total: int
    sweep: Sweep
    over: bool = False


def axes(lab: Playground, strategy: str, exits: Sequence[int] = ()) -> tuple[Axis, ...]:
    """The default grid of a strategy; empty if it has no settings to vary.

    ``exits`` are the exit layers for early exit; by default those with a trained exit, or three
    between the first and the last layer.
    """
    found = lab.offered().get(strategy)
    known = set(found.own_settings) if found else set()
    layers = Axis(_EXIT, "exit layer", _exits(lab, exits))
    chain = (_LENGTH, _THRESHOLD)
    if _EXIT in known:  # a third axis: fewer values on the others
        chain = (
            replace(_LENGTH, values=(1, 2, 4, 8)),
            replace(_THRESHOLD, values=(0.0, 0.4, 0.8)),
        )
    grid = (*chain, _LOOKUP_LENGTH, _NGRAM, _TREE, _DEPTH, layers)
    return tuple(_bounded(axis, lab.limits) for axis in grid if axis.setting in known)


def sweep(
    lab: Playground,
    prompt: str | Chat,
    drafter: Drafter,
    grid: Sequence[Axis] | None = None,
    *,
    stop: Stop | None = None,
    **shared: Any,
) -> Iterator[Progress]:
    """Run plain decoding, then every cell of a grid. Setting ``stop`` ends the sweep with the
    cells so far."""
    grid = axes(lab, drafter.strategy) if grid is None else tuple(grid)
    if drafter.unavailable_reason:
        raise PlaygroundError(drafter.unavailable_reason)
    if not grid:
        raise PlaygroundError(f"{drafter.strategy} has no draft length or threshold to vary")
    cells = list(product(*(axis.values for axis in grid)))
    tokens = len(cells) * int(shared.get("max_new_tokens", 48))
    most = lab.limits.max_new_tokens * lab.limits.strategies
    if tokens > most:
        raise PlaygroundError(
            f"{len(cells)} cells of the grid need {tokens} tokens; at most {most} are allowed"
        )
    return _sweep(lab, prompt, drafter, grid, cells, stop, shared)


def _sweep(
    lab: Playground,
    prompt: str | Chat,
    drafter: Drafter,
    grid: tuple[Axis, ...],
    cells: Sequence[tuple[Any, ...]],
    stop: Stop | None,
    shared: dict[str, Any],
) -> Iterator[Progress]:
    plain = _alone(lab, prompt, plain_baseline(lab, drafter), stop, shared)
    result = Sweep(drafter, grid, (), plain.tokens_per_second if plain else None)
    yield Progress(0, len(cells), result)
    for values in cells:
        settings = dict(zip((axis.setting for axis in grid), values, strict=True))
        # The grid sets the draft length, so no schedule may change it.
        if "num_assistant_tokens" in settings:
            settings["num_assistant_tokens_schedule"] = "constant"
        varied = replace(drafter, settings={**drafter.settings, **settings})
        lane = _alone(lab, prompt, varied, stop, shared)
        if lane is None or (lane.trace and lane.trace.stop.rule == "cancelled"):
            break
        result = replace(result, cells=(*result.cells, _cell(values, lane)))
        yield Progress(len(result.cells), len(cells), result)
    yield Progress(len(result.cells), len(cells), result, over=True)


def _alone(
    lab: Playground, prompt: str | Chat, drafter: Drafter, stop: Stop | None, shared: dict[str, Any]
) -> Lane | None:
    result: Race | None = None
    for update in race(lab, prompt, [drafter], stop=stop, **shared):
        result = update.result or result
    return result.lanes[0] if result and result.lanes else None


def _cell(values: tuple[Any, ...], lane: Lane) -> Cell:
    accounting = lane.accounting if not lane.error else None
    return Cell(
        values,
        lane.tokens_per_second,
        accounting.compression if accounting else None,
        accounting.acceptance if accounting else None,
        lane.error,
    )


def _exits(lab: Playground, exits: Sequence[int]) -> tuple[int, ...]:
    layers = int(lab.model.module.config.get_text_config(decoder=True).num_hidden_layers)
    quarters = sorted({max(1, layers * part // 4) for part in (1, 2, 3)})
    return tuple(exits or trained.exit_layers(lab.model) or quarters)


def _bounded(axis: Axis, limits: Limits) -> Axis:
    if axis.setting not in (_LENGTH.setting, _LOOKUP_LENGTH.setting, _TREE.setting):
        return axis
    return replace(
        axis, values=tuple(value for value in axis.values if value <= limits.draft_tokens)
    )
