"""The texts on how strategies affect watermarks."""

import pytest

from playground.watermarks.strategy_effects import watermark_effect
from strategies import registered


@pytest.mark.parametrize("scheme", ["lefthash", "selfhash", "synthid"])
@pytest.mark.parametrize("id", registered())
def test_every_strategy_has_a_text(id: str, scheme: str) -> None:
    text = watermark_effect(id, scheme)
    assert text.endswith(".") and len(text) > 20


def test_text_follows_the_kind_of_strategy() -> None:
    assert watermark_effect("medusa", "lefthash") == watermark_effect("speculative", "lefthash")
    assert "cannot be used with drafts" in watermark_effect("early_exit", "synthid")
    assert watermark_effect("beam_sample", "synthid") == watermark_effect("beam_search", "synthid")
    assert "your own code" in watermark_effect("custom", "lefthash")


def test_unknown_strategy_has_a_default_text() -> None:
    assert "not known" in watermark_effect("no such strategy", "lefthash")
