"""What several tests of the engine watch."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.accel.fused_layers import quicken
from engine.models.model import Model


@pytest.fixture
def passes() -> Iterator[Callable[[Model], list[int]]]:
    """Counts the queries of every forward pass of a model."""
    hooks = []

    def watch(model: Model) -> list[int]:
        sizes: list[int] = []
        quicken(model.module)  # its layers are checked by passes of their own, once

        def note(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
            sizes.append(kwargs["input_ids"].numel())

        hooks.append(model.module.register_forward_pre_hook(note, with_kwargs=True))
        return sizes

    yield watch
    for hook in hooks:
        hook.remove()
