"""One drafter over a grid of its settings: where it is fastest on this prompt.

Knows which settings a strategy's grid has: how far it drafts, how sure it must be to go on, and for
early exit after which layer it leaves. Prompt lookup asks nobody how sure it is, so its second axis
is how many words must match; trees of drafts have a size and a depth. Each cell is a run alone.
Refuses to draw.
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
from playground.speculation.race import Lane, Race, Stop, race

LENGTHS = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True)
class Axis:
    """One setting of a grid: its name, what people call it, and its values."""

    setting: str
    title: str
    values: tuple[Any, ...]


_LENGTH = Axis("num_assistant_tokens", "draft length", LENGTHS)
_SURE = Axis("assistant_confidence_threshold", "confidence threshold", (0.0, 0.2, 0.4, 0.6, 0.8))
_COPIED = Axis("prompt_lookup_num_tokens", "draft length", (*LENGTHS, 16))
_MATCH = Axis("max_matching_ngram_size", "tokens that must match", (1, 2, 3))
_TREE = Axis("medusa_tokens", "tokens in the tree", (4, 8, 16, 32))
_DEPTH = Axis("medusa_depth", "depth of the tree", (1, 2, 3, 4))
_EXIT = "assistant_early_exit"


@dataclass(frozen=True)
class Cell:
    """One run: a value for each axis, and how it went; None where it could not run."""

    values: tuple[Any, ...]
    tokens_per_second: float | None
    compression: float | None
    acceptance: float | None
    error: str | None = None


@dataclass(frozen=True)
class Sweep:
    """Every cell of a grid, and what plain decoding does on the same prompt."""

    drafter: Drafter
    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    plain: float | None  # tokens a second

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
    """How far a sweep has come; ``sweep`` has the cells there are."""

    done: int
    total: int
    sweep: Sweep
    over: bool = False


def axes(lab: Playground, strategy: str, exits: Sequence[int] = ()) -> tuple[Axis, ...]:
    """The grid of a strategy, with the values that are usual; none where it has no such settings.

    ``exits`` are the layers early exit may leave after; without them, those that an exit was
    trained for, or three between the first and the last.
    """
    found = lab.offered().get(strategy)
    known = set(found.own_settings) if found else set()
    layers = Axis(_EXIT, "exit layer", _exits(lab, exits))
    both = (_LENGTH, _SURE)
    if _EXIT in known:  # a third axis: fewer values on the others
        both = (replace(_LENGTH, values=(1, 2, 4, 8)), replace(_SURE, values=(0.0, 0.4, 0.8)))
    grid = (*both, _COPIED, _MATCH, _TREE, _DEPTH, layers)
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
    """Run every cell of a grid, plain decoding first; setting ``stop`` ends it with the cells
    there are. The last word is ``over``."""
    asked = axes(lab, drafter.strategy) if grid is None else tuple(grid)
    if drafter.unavailable_reason or not asked:
        why = (
            drafter.unavailable_reason
            or f"{drafter.strategy} has no draft length or threshold to vary"
        )
        raise PlaygroundError(why)
    cells = list(product(*(axis.values for axis in asked)))
    tokens = len(cells) * int(shared.get("max_new_tokens", 48))
    most = lab.limits.max_new_tokens * lab.limits.strategies
    if tokens > most:
        raise PlaygroundError(
            f"{len(cells)} cells write {tokens} tokens; at most {most} are written in one go"
        )
    return _sweep(lab, prompt, drafter, asked, cells, stop, shared)


def _sweep(
    lab: Playground,
    prompt: str | Chat,
    drafter: Drafter,
    grid: tuple[Axis, ...],
    cells: Sequence[tuple[Any, ...]],
    stop: Stop | None,
    shared: dict[str, Any],
) -> Iterator[Progress]:
    usual = _alone(lab, prompt, plain_baseline(lab, drafter), stop, shared)
    told = Sweep(drafter, grid, (), usual.tokens_per_second if usual else None)
    yield Progress(0, len(cells), told)
    for values in cells:
        settings = dict(zip((axis.setting for axis in grid), values, strict=True))
        # The grid says how far to draft, so nothing else may.
        if "num_assistant_tokens" in settings:
            settings["num_assistant_tokens_schedule"] = "constant"
        one = replace(drafter, settings={**drafter.settings, **settings})
        lane = _alone(lab, prompt, one, stop, shared)
        if lane is None or (lane.trace and lane.trace.stop.rule == "cancelled"):
            break
        told = replace(told, cells=(*told.cells, _cell(values, lane)))
        yield Progress(len(told.cells), len(cells), told)
    yield Progress(len(told.cells), len(cells), told, over=True)


def _alone(
    lab: Playground, prompt: str | Chat, drafter: Drafter, stop: Stop | None, shared: dict[str, Any]
) -> Lane | None:
    result: Race | None = None
    for news in race(lab, prompt, [drafter], stop=stop, **shared):
        result = news.result or result
    return result.lanes[0] if result and result.lanes else None


def _cell(values: tuple[Any, ...], lane: Lane) -> Cell:
    told = lane.accounting if not lane.error else None
    return Cell(
        values,
        lane.tokens_per_second,
        told.compression if told else None,
        told.acceptance if told else None,
        lane.error,
    )


def _exits(lab: Playground, asked: Sequence[int]) -> tuple[int, ...]:
    layers = int(lab.model.module.config.get_text_config(decoder=True).num_hidden_layers)
    usual = sorted({max(1, layers * part // 4) for part in (1, 2, 3)})
    return tuple(asked or trained.exit_layers(lab.model) or usual)


def _bounded(axis: Axis, limits: Limits) -> Axis:
    if axis.setting not in (_LENGTH.setting, _COPIED.setting, _TREE.setting):
        return axis
    return replace(axis, values=tuple(one for one in axis.values if one <= limits.draft_tokens))
