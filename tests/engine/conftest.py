"""Fixtures for the engine's tests."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from playground import Playground


@pytest.fixture
def passes() -> Iterator[Callable[[Playground], list[int]]]:
    """Counts the queries of every forward pass of a playground's model."""
    hooks = []

    def watch(lab: Playground) -> list[int]:
        sizes: list[int] = []

        def note(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
            sizes.append(kwargs["input_ids"].numel())

        hooks.append(lab._backends._view.register_forward_pre_hook(note, with_kwargs=True))
        return sizes

    yield watch
    for hook in hooks:
        hook.remove()
