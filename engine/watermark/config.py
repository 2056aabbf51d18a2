"""The two kinds of watermark and their settings, declared once for writing and for detecting.

Knows the fields of transformers' watermarking configs and what each may hold: transformers itself
finds out too late, or not at all. Refuses to know how a mark is written or found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import SynthIDTextWatermarkingConfig, WatermarkingConfig

from engine.errors import PlaygroundError, did_you_mean
from engine.settings import Limits, Setting, check, setting, settings_of

GREEN_SCHEMES = ("lefthash", "selfhash")
SCHEMES = (*GREEN_SCHEMES, "synthid")

# One layer of the tournament each. Public, so a secret mark needs keys of its own.
KEYS = (654, 400, 836, 123, 340, 443, 597, 160, 57, 29)

_LOW, _HIGH = -(2**63), 2**63 - 1  # what a random generator can be seeded with

Config = WatermarkingConfig | SynthIDTextWatermarkingConfig


@dataclass(frozen=True)
class GreenList:
    """The fields of `WatermarkingConfig` (Kirchenbauer et al. 2023)."""

    greenlist_ratio: float = setting(0.25, "The share of green tokens.", low=0.001, high=0.999)
    bias: float = setting(
        2.0, "What is added to the scores of green tokens.", low=-100.0, high=100.0
    )
    hashing_key: int = setting(15485863, "The key of the green lists.", low=_LOW, high=_HIGH)
    seeding_scheme: str = setting("lefthash", "How they are seeded.", choices=GREEN_SCHEMES)
    context_width: int = setting(1, "How many tokens seed a list.", low=1, high=512)


@dataclass(frozen=True)
class SynthID:
    """The fields of `SynthIDTextWatermarkingConfig` (Dathathri et al. 2024)."""

    ngram_len: int = setting(
        5, "A token and those before it that seed its g-values.", low=2, high=64
    )
    keys: Any = setting(KEYS, "A key for each layer of the tournament.", kind=object)
    context_history_size: int = setting(
        1024, "How far back a repeated context is noticed, and left unmarked.", low=1, high=2**20
    )
    sampling_table_seed: int = setting(
        0, "What the table of coin flips is drawn from.", low=_LOW, high=_HIGH
    )
    sampling_table_size: int = setting(2**16, "How many coin flips it holds.", low=2, high=2**24)
    skip_first_ngram_calls: bool = setting(
        False, "Leave the first tokens unmarked, whose context is not whole."
    )
    debug_mode: bool = setting(False, "Mark as if every token were as probable as any other.")


GREEN_LIST = settings_of(GreenList)
SYNTHID = settings_of(SynthID)
MOST_KEYS = 64


def settings_for(scheme: str) -> dict[str, Setting]:
    """The settings a scheme has, by name."""
    if scheme not in SCHEMES:
        near = did_you_mean(scheme, SCHEMES) if isinstance(scheme, str) else ""
        raise PlaygroundError(f"unknown scheme {scheme!r}{near}; it must be one of {_named()}")
    if scheme == "synthid":
        return SYNTHID
    return {name: one for name, one in GREEN_LIST.items() if name != "seeding_scheme"}


def checked(scheme: str, fields: Mapping[str, Any], limits: Limits | None = None) -> Config:
    """A scheme's config with these fields; what is not given is as the scheme has it."""
    known = settings_for(scheme)
    given = check(fields, known, limits or Limits(), "a watermark")
    if scheme != "synthid":
        return WatermarkingConfig(seeding_scheme=scheme, **given)
    given = {"ngram_len": SynthID.ngram_len, "keys": KEYS, **given}
    given["keys"] = _keys(given["keys"])
    return SynthIDTextWatermarkingConfig(**given)


def mark_to_write(fields: Any) -> Config:
    """The watermark that ``watermarking_config`` asks for: only SynthID has an n-gram length."""
    if isinstance(fields, Config):
        fields = fields.to_dict()
    if not isinstance(fields, Mapping):
        raise PlaygroundError(f"watermarking_config is {fields!r}; it must be names and values")
    try:
        if "ngram_len" not in fields:
            given = check(fields, GREEN_LIST, Limits(), "a watermark")
            return WatermarkingConfig(**given)
        if "keys" not in fields:
            raise PlaygroundError("SynthID needs keys, one whole number for each of its layers")
        return checked("synthid", fields)
    except PlaygroundError as error:
        raise PlaygroundError(f"watermarking_config is {dict(fields)!r}: {error}") from error


def _keys(given: Any) -> list[int]:
    keys = list(given) if isinstance(given, list | tuple) else []
    whole = all(type(key) is int and _LOW <= key <= _HIGH for key in keys)
    if not whole or not 1 <= len(keys) <= MOST_KEYS:
        raise PlaygroundError(
            f"keys is {given!r}; it must be a list of 1 to {MOST_KEYS} whole numbers of 64 bits"
        )
    return keys


def _named() -> str:
    return ", ".join(map(repr, SCHEMES))
