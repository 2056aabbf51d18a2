"""The collector is away while things are made, is back afterwards, and takes models that go."""

import gc
import weakref
from pathlib import Path

import pytest

from engine.garbage import uncollected
from engine.models import loading as models
from tests.tiny import tiny


@pytest.mark.parametrize("before", [True, False])
def test_nothing_is_collected_meanwhile_and_afterwards_it_is_as_before(before: bool) -> None:
    try:
        (gc.enable if before else gc.disable)()
        with pytest.raises(ZeroDivisionError), uncollected():
            assert not gc.isenabled()
            with uncollected():
                pass
            assert not gc.isenabled(), "the inner one is not the last"
            raise ZeroDivisionError
        assert gc.isenabled() == before
    finally:
        gc.enable()


def test_a_model_that_is_not_wanted_any_more_goes(tmp_path: Path) -> None:
    tiny("llama").module.save_pretrained(tmp_path)
    tiny("llama").tokenizer.save_pretrained(tmp_path)
    model = models.load(str(tmp_path))
    gone = weakref.ref(model.module)
    assert gc.isenabled()
    del model
    gc.collect()
    assert gone() is None
