"""The choice of a backend, and the status that reports it."""

import copy
import logging

import pytest

from playground import Playground
from tests.tiny import tiny


def test_status_names_the_trie_and_its_accelerations() -> None:
    status = Playground(tiny("llama")).backend_status
    assert status.backend == "trie" and status.reason is None
    assert "fused layers" in status.accelerations
    # Packed weights are used where they are faster, which is measured.
    assert all("packed weights" in reason for reason in status.fallbacks)
    assert str(status).startswith("trie backend with ")


def test_status_gives_the_reason_for_layers_that_are_not_fused() -> None:
    status = Playground(tiny("gpt2")).backend_status
    assert status.backend == "trie" and "fused layers" not in status.accelerations
    assert any(
        "no fused layers: the layers of GPT2LMHeadModel" in reason for reason in status.fallbacks
    )


def test_accelerations_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYGROUND_ACCEL", "off")
    status = Playground(tiny("llama")).backend_status
    assert not status.accelerations and status.fallbacks == ("PLAYGROUND_ACCEL is off",)


@pytest.mark.parametrize(
    "kind, reason",
    [("t5", "it is an encoder-decoder"), ("mamba", "its forward pass takes no position_ids")],
)
def test_the_plain_backend_is_logged_and_reported_with_its_reason(
    kind: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        status = Playground(copy.deepcopy(tiny(kind))).backend_status
    assert status.backend == "plain" and status.reason == reason
    assert f"runs on the plain backend: {reason}" in caplog.text
    assert str(status) == f"plain backend ({reason})"
