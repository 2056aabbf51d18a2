"""Commands load each model once."""

from functools import cache

import pytest

from engine.models import loading

_load = cache(loading.load)


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "load", _load)
