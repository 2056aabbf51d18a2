"""What a calibration is asked to measure, checked before anything runs.

Knows what is allowed. Refuses to measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.errors import PlaygroundError
from engine.settings import Limits, Setting
from engine.watermark import config as marks

# What a calibration itself decides about every run.
_DECIDED = ("max_new_tokens", "min_new_tokens", "seed", "watermarking_config")
_BOUNDS = (
    Setting("texts", int, 100, "How many marked texts.", low=2, high=10_000),
    Setting("length", int, 200, "Their length in tokens.", low=8, limit="max_new_tokens"),
    Setting("others", int, 16, "How many texts for each further bias.", low=2, high=10_000),
    Setting("keys", int, 3, "Under how many keys human texts are scored.", low=1, high=50),
    Setting("seed", int, 0, "Where the random numbers start.", low=0, high=2**62),
    Setting("threshold", float, 4.0, "The z-score above which a text counts as marked.", low=-1000),
    Setting("ignore_repeated", bool, True, "Count repeated n-grams once."),
)


@dataclass(frozen=True)
class CalibrationSpec:
    """What is to be measured.

    ``fields`` are the watermark's own, ``settings`` those of sampling. Each of ``biases`` is tried
    on ``others`` texts to see what it costs; 0 is no mark at all. Each human text is scored under
    ``keys`` keys: on a text that nobody marked, a key that nobody used is as good as the right one.
    """

    scheme: str = "lefthash"
    fields: Mapping[str, Any] = field(default_factory=dict)
    texts: int = 100
    length: int = 200
    lengths: tuple[int, ...] = (25, 50, 100, 150, 200)
    threshold: float = 4.0
    ignore_repeated: bool = True
    biases: tuple[float, ...] = (0.0, 1.0, 2.0, 4.0)
    others: int = 16
    keys: int = 3
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def at(self) -> tuple[int, ...]:
        """The lengths at which texts are scored: those that there are, and the whole."""
        return tuple(sorted({n for n in self.lengths if n < self.length} | {self.length}))

    @property
    def bias(self) -> float | None:
        """What green tokens are given, where the scheme knows of such a thing."""
        known = marks.settings_for(self.scheme).get("bias")
        return None if known is None else float(self.fields.get("bias", known.default))

    def mark(self, bias: float | None) -> marks.Config | None:
        """The watermark with another bias; 0 is none."""
        if bias == 0:
            return None
        own = {} if bias is None else {"bias": bias}
        return marks.checked(self.scheme, {**self.fields, **own})

    def detection(self, key: int = 0) -> dict[str, Any]:
        """What the detector is told: the right key, or one of the others, from 1 on."""
        fields = {name: value for name, value in self.fields.items() if name != "bias"}
        told = {"scheme": self.scheme, "ignore_repeated": self.ignore_repeated, **fields}
        if key:
            config = marks.checked(self.scheme, fields).to_dict()
            name = "keys" if self.scheme == "synthid" else "hashing_key"
            told[name] = _shifted(config[name], key)
        return told

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {**asdict(self), "fields": dict(self.fields), "settings": dict(self.settings)}


def _shifted(value: Any, key: int) -> Any:
    if isinstance(value, list | tuple):
        return [_shifted(one, key) for one in value]
    return value - 7919 * key if value > 0 else value + 7919 * key  # away from the largest number


def check(spec: CalibrationSpec, limits: Limits) -> None:
    """Refuse what cannot be measured, in words."""
    marks.checked(spec.scheme, spec.fields)
    for bound in _BOUNDS:
        value = getattr(spec, bound.name)
        if value is None or bound.check(value, limits) is None:
            raise PlaygroundError(f"{bound.name} is not given")
    for length in spec.lengths:
        if type(length) is not int or length < 1:
            raise PlaygroundError(f"lengths has {length!r}; it must be whole numbers above 0")
    if spec.bias is None and any(spec.biases):
        raise PlaygroundError(
            f"{spec.scheme} has no bias; biases may only have 0, which is no mark"
        )
    for bias in spec.biases:
        spec.mark(bias)
    for name in _DECIDED:
        if name in spec.settings:
            raise PlaygroundError(f"{name} is no setting of sampling that can be chosen here")
