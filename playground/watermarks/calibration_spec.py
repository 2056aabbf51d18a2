"""The parameters of a calibration, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.errors import PlaygroundError
from engine.settings import Limits, Setting
from engine.watermark import config as marks
from engine.watermark.statistics import Z_THRESHOLD

# Settings that a calibration sets itself.
_RESERVED = ("max_new_tokens", "min_new_tokens", "seed", "watermarking_config")
_BOUNDS = (
    Setting("texts", int, 100, "Number of marked texts.", low=2, high=10_000),
    Setting("length", int, 200, "Length of each text in tokens.", low=8, limit="max_new_tokens"),
    Setting("others", int, 16, "Number of texts for each further bias.", low=2, high=10_000),
    Setting(
        "keys", int, 3, "Number of keys under which human-written texts are scored.", low=1, high=50
    ),
    Setting("seed", int, 0, "Random seed.", low=0, high=2**62),
    Setting(
        *("threshold", float, Z_THRESHOLD, "The z-score above which a text counts as marked."),
        low=-1000,
    ),
    Setting("ignore_repeated", bool, True, "Count repeated n-grams once."),
)


@dataclass(frozen=True)
class CalibrationSpec:
    """The parameters of a calibration.

    ``fields`` are the watermark's settings, ``settings`` those of sampling. The cost of each of
    ``biases`` is measured on ``others`` texts; 0 is no watermark. Each human-written text is scored
    under ``keys`` keys, which gives more scores: on an unmarked text all keys are equally good.
    """

    scheme: str = "lefthash"
    fields: Mapping[str, Any] = field(default_factory=dict)
    texts: int = 100
    length: int = 200
    lengths: tuple[int, ...] = (25, 50, 100, 150, 200)
    threshold: float = Z_THRESHOLD
    ignore_repeated: bool = True
    biases: tuple[float, ...] = (0.0, 1.0, 2.0, 4.0)
    others: int = 16
    keys: int = 3
    seed: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def at(self) -> tuple[int, ...]:
        """The lengths at which texts are scored, the whole length included."""
        return tuple(sorted({n for n in self.lengths if n < self.length} | {self.length}))

    @property
    def bias(self) -> float | None:
        """The bias of green tokens, or None if the scheme has none."""
        known = marks.settings_for(self.scheme).get("bias")
        return None if known is None else float(self.fields.get("bias", known.default))

    def mark(self, bias: float | None) -> marks.Config | None:
        """The watermark with another bias; None for a bias of 0."""
        if bias == 0:
            return None
        own = {} if bias is None else {"bias": bias}
        return marks.build_config(self.scheme, {**self.fields, **own})

    def detection(self, key: int = 0) -> dict[str, Any]:
        """The detector's arguments, with the right key (0) or another one (1, 2, …)."""
        fields = {name: value for name, value in self.fields.items() if name != "bias"}
        arguments = {"scheme": self.scheme, "ignore_repeated": self.ignore_repeated, **fields}
        if key:
            config = marks.build_config(self.scheme, fields).to_dict()
            name = "keys" if self.scheme == "synthid" else "hashing_key"
            arguments[name] = _shifted(config[name], key)
        return arguments

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {**asdict(self), "fields": dict(self.fields), "settings": dict(self.settings)}


def _shifted(value: Any, key: int) -> Any:
    if isinstance(value, list | tuple):
        return [_shifted(one, key) for one in value]
    return value - 7919 * key if value > 0 else value + 7919 * key  # stays within range


def check(spec: CalibrationSpec, limits: Limits) -> None:
    """Raise `PlaygroundError` for invalid parameters."""
    marks.build_config(spec.scheme, spec.fields)
    for bound in _BOUNDS:
        value = getattr(spec, bound.name)
        if value is None or bound.check(value, limits) is None:
            raise PlaygroundError(f"{bound.name} is not given")
    for length in spec.lengths:
        if type(length) is not int or length < 1:
            raise PlaygroundError(f"lengths has {length!r}; it must be whole numbers above 0")
    if spec.bias is None and any(spec.biases):
        raise PlaygroundError(
            f"{spec.scheme} has no bias; biases may only contain 0, which is no watermark"
        )
    for bias in spec.biases:
        spec.mark(bias)
    for name in _RESERVED:
        if name in spec.settings:
            raise PlaygroundError(f"{name} is set by the calibration and cannot be changed")
