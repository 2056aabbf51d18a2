"""Declarations of settings: default, range and help in one place.

The control on the page, the check, the error message and the row in tables are derived from them.
Settings have the names of `GenerationConfig` wherever it has one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.errors import PlaygroundError, did_you_mean


def _limit(default: float, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Limits:
    """The limits of one server; each is a command-line flag of ``app.py``."""

    prompt_characters: int = _limit(20_000, "longest prompt, in characters")
    prompt_tokens: int = _limit(8_192, "longest prompt, in tokens")
    max_new_tokens: int = _limit(1_000, "most new tokens per run")
    rows: int = _limit(16, "most beams, and most sequences that one run samples or returns")
    seconds: float = _limit(0.0, "most seconds per run, without pauses; 0 is no limit")
    strategies: int = _limit(6, "most strategies in one comparison")
    draft_tokens: int = _limit(64, "most tokens drafted in one round")
    positions: int = _limit(8_192, "tokens in the key/value pool, for all runs together")
    comparisons: int = _limit(32, "comparisons running at the same time; further ones wait")
    waiting: int = _limit(128, "comparisons that may wait for their turn")
    columns: int = _limit(12, "most columns on the page, forks included")
    boards: int = _limit(32, "finished comparisons kept for forks, exports and reloads")
    upload_bytes: int = _limit(20_000_000, "largest trace file, in bytes")
    detect_characters: int = _limit(2_000_000, "longest text for watermark detection")
    green_lists: int = _limit(100_000, "most green lists drawn to analyse one text")
    calibration_tokens: int = _limit(100_000, "most tokens generated for one calibration")


@dataclass(frozen=True)
class Setting:
    """The declaration of one setting. ``default`` None: the value of the model's generation
    config."""

    name: str
    kind: type  # int, float, bool, str, or object for structured values
    default: Any
    help: str
    low: float | None = None
    high: float | None = None
    open_low: bool = False  # the lower bound itself is not allowed
    choices: tuple[Any, ...] | None = None
    limit: str | None = None  # the field of `Limits` that also bounds it from above
    python_only: bool = False  # an object that cannot be entered on the page or command line
    only_with: str | None = None  # the setting that must be on for this one to have an effect

    def highest(self, limits: Limits) -> float | None:
        """The upper bound under these limits."""
        bounds = [self.high, getattr(limits, self.limit) if self.limit else None]
        return min((bound for bound in bounds if bound is not None), default=None)

    def allowed(self, limits: Limits) -> str:
        """The allowed values, in words."""
        if self.choices is not None:
            return "one of " + ", ".join(repr(choice) for choice in self.choices)
        noun = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
        words = noun.get(self.kind, "a value")
        high = self.highest(limits)
        if self.low is not None:
            words += f" above {self.low}" if self.open_low else f" of at least {self.low}"
        if high is not None:
            words += f"{' and' if self.low is not None else ''} at most {high}"
        return words

    def check(self, value: Any, limits: Limits) -> Any:
        """The value in the setting's type; raises `PlaygroundError` if it is not allowed."""
        if value is None:
            return None
        if not self._fits(value, limits):
            raise PlaygroundError(f"{self.name} is {value!r}; it must be {self.allowed(limits)}")
        return float(value) if self.kind is float else value

    def _fits(self, value: Any, limits: Limits) -> bool:
        if self.choices is not None:
            # True == 1 in Python, but they are different choices.
            return any(type(value) is type(choice) and value == choice for choice in self.choices)
        if self.kind not in (int, float):
            return isinstance(value, self.kind)
        numeric = int if self.kind is int else (int, float)
        if isinstance(value, bool) or not isinstance(value, numeric):
            return False
        if isinstance(value, float) and not math.isfinite(value):
            return False
        high = self.highest(limits)
        if self.low is not None and (value < self.low or (self.open_low and value == self.low)):
            return False
        return high is None or value <= high


def setting(default: Any, help: str, *, kind: type | None = None, **bounds: Any) -> Any:
    """Declare a field of a `Params` dataclass; ``kind`` is the type of the default, if there is
    one, else float."""
    declared = kind or (type(default) if default is not None else float)
    return field(default=default, metadata={"help": help, "kind": declared, **bounds})


def settings_of(params: type) -> dict[str, Setting]:
    """The settings that a `Params` dataclass declares, by name."""
    return {
        item.name: Setting(name=item.name, default=item.default, **item.metadata)
        for item in dataclasses.fields(params)
    }


def check(
    given: Mapping[str, Any], known: Mapping[str, Setting], limits: Limits, owner: str
) -> dict[str, Any]:
    """Check settings and drop those that are None; an unknown name raises an error with a
    suggestion."""
    for name in given:
        if name not in known:
            raise PlaygroundError(
                f"unknown setting {name!r} for {owner}{did_you_mean(name, known)}"
            )
    checked = {name: known[name].check(value, limits) for name, value in given.items()}
    return {name: value for name, value in checked.items() if value is not None}


@dataclass(frozen=True)
class Shared:
    """The settings of every strategy. None: the value of the model's generation config."""

    max_new_tokens: int = setting(
        48, "Maximum number of new tokens.", low=1, limit="max_new_tokens"
    )
    seed: int = setting(
        0, "Seed of the random numbers; equal seeds give equal samples.", low=0, high=2**63 - 1
    )
    repetition_penalty: float | None = setting(
        None,
        "Above 1 makes tokens that occurred before less likely, below 1 more likely.",
        low=0.001,  # dividing by much smaller numbers overflows
        high=1000.0,
    )
    encoder_repetition_penalty: float | None = setting(
        None,
        "Above 1 makes tokens of the prompt more likely, below 1 less likely.",
        low=0.001,
        high=1000.0,
    )
    no_repeat_ngram_size: int | None = setting(
        None, "No n-gram of this length may occur twice; 0 turns this off.", kind=int, low=0
    )
    encoder_no_repeat_ngram_size: int | None = setting(
        None,
        "No n-gram of this length from the prompt may occur in the output; 0 turns this off.",
        kind=int,
        low=0,
    )
    bad_words_ids: Any = setting(
        None, "Words that must not occur: a list of words or of token id lists.", kind=object
    )
    sequence_bias: Any = setting(
        None, 'Words and a bias for their scores, for example {"fox": -5.0}.', kind=object
    )
    min_length: int | None = setting(
        None,
        "Minimum length of the text in tokens, prompt included.",
        kind=int,
        low=0,
    )
    min_new_tokens: int | None = setting(None, "Minimum number of new tokens.", kind=int, low=0)
    max_time: float | None = setting(None, "Stop after this many seconds.", low=0.0, open_low=True)
    stop_strings: Any = setting(
        None, "Stop when one of these strings occurs: a string or a list.", kind=object
    )
    eos_token_id: Any = setting(
        None, "Tokens that end the text: an id, a token, or a list of them.", kind=object
    )
    forced_bos_token_id: Any = setting(
        None, "First token of the output of an encoder-decoder.", kind=object
    )
    forced_eos_token_id: Any = setting(
        None, "Last token of the output when the maximum length is reached.", kind=object
    )
    exponential_decay_length_penalty: Any = setting(
        None,
        "[start, factor]: after start new tokens, the end token becomes exponentially more likely.",
        kind=object,
    )
    suppress_tokens: Any = setting(
        None, "Tokens that must not occur: ids or single-token words.", kind=object
    )
    begin_suppress_tokens: Any = setting(
        None, "Tokens that must not come first: ids or single-token words.", kind=object
    )
    guidance_scale: float | None = setting(
        None,
        "Classifier-free guidance: above 1 moves away from what the model predicts without the "
        "prompt.",
        low=0.0,
    )
    negative_prompt: str | None = setting(
        None,
        "Text that guidance moves away from; by default the last token of the prompt alone.",
        kind=str,
    )
    negative_prompt_ids: Any = setting(
        None, "The negative prompt as a list of token ids.", kind=object, python_only=True
    )
    renormalize_logits: bool | None = setting(
        None, "Normalize the scores to log-probabilities after all processors.", kind=bool
    )
    remove_invalid_values: bool | None = setting(
        None, "Replace NaN and infinite scores.", kind=bool
    )
    watermarking_config: Any = setting(
        None,
        "Watermark: the fields of WatermarkingConfig or SynthIDTextWatermarkingConfig.",
        kind=object,
    )
    prefix_allowed_tokens_fn: Any = setting(
        None,
        "Function of (row, tokens so far) that returns the tokens allowed next.",
        kind=object,
        python_only=True,
    )
    logits_processor: Any = setting(
        None, "Additional LogitsProcessor objects.", kind=object, python_only=True
    )
    stopping_criteria: Any = setting(
        None, "Additional StoppingCriteria objects.", kind=object, python_only=True
    )


SHARED = settings_of(Shared)
