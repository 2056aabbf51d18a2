"""The settings of both kinds of watermark, used for generation and for detection.

The fields are those of transformers' watermarking configs, with limits that are checked before a
run: transformers rejects invalid values late or not at all.
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

# The default keys, one per tournament layer. They are public: a secret watermark needs others.
KEYS = (654, 400, 836, 123, 340, 443, 597, 160, 57, 29)

_LOW, _HIGH = -(2**63), 2**63 - 1  # valid seeds of a torch.Generator

Config = WatermarkingConfig | SynthIDTextWatermarkingConfig


@dataclass(frozen=True)
class GreenList:
    """The fields of `WatermarkingConfig` (Kirchenbauer et al. 2023)."""

    greenlist_ratio: float = setting(
        0.25, "Share of the vocabulary on the green list.", low=0.001, high=0.999
    )
    bias: float = setting(2.0, "Added to the logits of green tokens.", low=-100.0, high=100.0)
    hashing_key: int = setting(15485863, "Secret key of the green lists.", low=_LOW, high=_HIGH)
    seeding_scheme: str = setting(
        "lefthash",
        "What seeds a green list: the tokens before it (lefthash), or also the token itself "
        "(selfhash).",
        choices=GREEN_SCHEMES,
    )
    context_width: int = setting(1, "Number of tokens that seed a green list.", low=1, high=512)


@dataclass(frozen=True)
class SynthID:
    """The fields of `SynthIDTextWatermarkingConfig` (Dathathri et al. 2024)."""

    ngram_len: int = setting(
        5, "Length of the n-gram that seeds the g-values of its last token.", low=2, high=64
    )
    keys: Any = setting(KEYS, "One integer key per tournament layer.", kind=object)
    context_history_size: int = setting(
        1024,
        "Number of past contexts to remember; a repeated context is not marked again.",
        low=1,
        high=2**20,
    )
    sampling_table_seed: int = setting(0, "Seed of the table of random bits.", low=_LOW, high=_HIGH)
    sampling_table_size: int = setting(
        2**16, "Number of random bits in that table.", low=2, high=2**24
    )
    skip_first_ngram_calls: bool = setting(
        False, "Do not mark the first tokens, whose context is incomplete."
    )
    debug_mode: bool = setting(
        False, "Mark as if all tokens were equally probable (for debugging)."
    )


GREEN_LIST = settings_of(GreenList)
SYNTHID = settings_of(SynthID)
MOST_KEYS = 64


def settings_for(scheme: str) -> dict[str, Setting]:
    """The settings of a scheme, by name."""
    if scheme not in SCHEMES:
        near = did_you_mean(scheme, SCHEMES) if isinstance(scheme, str) else ""
        names = ", ".join(map(repr, SCHEMES))
        raise PlaygroundError(f"unknown scheme {scheme!r}{near}; it must be one of {names}")
    if scheme == "synthid":
        return SYNTHID
    return {name: one for name, one in GREEN_LIST.items() if name != "seeding_scheme"}


def build_config(scheme: str, fields: Mapping[str, Any], limits: Limits | None = None) -> Config:
    """The config of a scheme with these fields, checked; the others have their defaults."""
    known = settings_for(scheme)
    given = check(fields, known, limits or Limits(), "a watermark")
    if scheme != "synthid":
        return WatermarkingConfig(seeding_scheme=scheme, **given)
    given = {"ngram_len": SynthID.ngram_len, "keys": KEYS, **given}
    given["keys"] = _keys(given["keys"])
    return SynthIDTextWatermarkingConfig(**given)


def parse_watermark(fields: Any) -> Config:
    """The config for a value of ``watermarking_config``: SynthID's if it has ``ngram_len``."""
    if isinstance(fields, Config):
        fields = fields.to_dict()
    if not isinstance(fields, Mapping):
        raise PlaygroundError(f"watermarking_config is {fields!r}; it must be names and values")
    try:
        if "ngram_len" not in fields:
            given = check(fields, GREEN_LIST, Limits(), "a watermark")
            return WatermarkingConfig(**given)
        if "keys" not in fields:
            raise PlaygroundError("SynthID needs keys, one integer per layer")
        return build_config("synthid", fields)
    except PlaygroundError as error:
        raise PlaygroundError(f"watermarking_config is {dict(fields)!r}: {error}") from error


def _keys(given: Any) -> list[int]:
    keys = list(given) if isinstance(given, list | tuple) else []
    whole = all(type(key) is int and _LOW <= key <= _HIGH for key in keys)
    if not whole or not 1 <= len(keys) <= MOST_KEYS:
        raise PlaygroundError(
            f"keys is {given!r}; it must be a list of 1 to {MOST_KEYS} 64-bit integers"
        )
    return keys
