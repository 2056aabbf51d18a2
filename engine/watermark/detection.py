"""The result of a watermark detection: a verdict on every token and on the text."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from engine.watermark.statistics import MARKED, TOO_SHORT, NullHypothesis, Score

Verdict = Literal["green", "red", "unscored"]
# Why a token is not scored: incomplete context, a repeated n-gram, or outside the text (the token
# that starts it, and everything from the one that ends it).
Why = Literal["", "context", "repeated", "bos", "eos"]


class TokenVerdict(NamedTuple):
    """One token of a text. ``value`` is what it adds to the score, also if it is a repeat that is
    not counted: 1 or 0 for green and red, for SynthID the weighted mean of its ``g_values``."""

    id: int
    text: str
    verdict: Verdict
    why: Why = ""
    value: float | None = None
    repeated: bool = False  # its n-gram, for SynthID its context, occurred before
    redrawn: bool = False  # its colour was drawn before, for this n-gram or another one
    g_values: tuple[int, ...] = ()  # one per layer


@dataclass(frozen=True)
class Layers:
    """SynthID's g-values: plain and weighted mean, and the value each must exceed at this length to
    reach the z-score threshold."""

    ones: int
    g_values: int
    share: float  # of ones in the sampling table: the mean of an unmarked text
    mean: float
    mean_z: float
    mean_p: float  # exact: the ones are binomial
    mean_threshold: float
    weighted_mean: float
    weighted_z: float
    weighted_p: float  # by the normal approximation
    weighted_threshold: float
    by_layer: tuple[float, ...]  # the mean of each layer's g-values, first layer first


@dataclass(frozen=True)
class RoundTrip:
    """What decoding a run's tokens to text and encoding them again does to the watermark."""

    tokens: int  # in the run
    survived: int  # how many of them keep their id and characters
    score: Score  # of the encoded text
    verdict: str

    @property
    def lost(self) -> int:
        """How many tokens change."""
        return self.tokens - self.survived


@dataclass(frozen=True)
class Detection:
    """The result of a detection.

    The first figures follow ``ignore_repeated``; ``with_repeats`` and ``without_repeats`` have both
    cases, and ``independent`` excludes every colour that was drawn before, because a list of
    ``lefthash`` depends on one token, however wide its context is. ``marked`` is the prediction of
    `WatermarkDetector`; ``verdict`` also considers texts that are too short and repeated evidence.
    """

    scheme: str
    tokens_scored: int
    green_tokens: int
    green_fraction: float
    z_score: float
    p_value: float
    marked: bool
    exact_p: float
    verdict: str
    z_threshold: float
    ignore_repeated: bool
    settings: dict[str, Any]
    with_repeats: Score
    without_repeats: Score
    independent: Score
    chance: NullHypothesis
    tokens: tuple[TokenVerdict, ...] = field(repr=False)
    layers: Layers | None = None
    round_trip: RoundTrip | None = None

    @property
    def reason(self) -> str:
        """The verdict with its reason, as a sentence."""
        counted = f"{self.tokens_scored} of {len(self.tokens)} tokens scored"
        if not self.tokens_scored:
            before = f"the scheme needs the {self._context} tokens before a token to score it"
            return f"a text of {len(self.tokens)} tokens is {TOO_SHORT}; {before}"
        if self.verdict == TOO_SHORT:
            own = f"{self.independent.tokens_scored} of {len(self.tokens)} tokens"
            return f"{TOO_SHORT}: only {own} are independent, not enough even if all were green"
        z = f"z = {self.z_score:.2f} (threshold {self.z_threshold:g})"
        if self.marked and self.verdict != MARKED:
            once = f"z = {self.independent.z_score:.2f} if every draw counts once"
            return f"{self.verdict}: {counted}, {z}, but {once}; repeats are no evidence"
        probability = f"an unmarked text scores as high with probability {self.exact_p:.2g}"
        return f"{self.verdict}: {counted}, {z}; {probability}"

    @property
    def _context(self) -> int:
        ngram: int | None = self.settings.get("ngram_len")
        return ngram - 1 if ngram else int(self.settings["context_width"])

    def to_dict(self, *, tokens: bool = True) -> dict[str, Any]:
        """The fields as JSON values, optionally without the tokens."""
        fields = {name: _plain(value) for name, value in vars(self).items() if name != "tokens"}
        fields["reason"] = self.reason
        return fields | ({"tokens": [_token(one) for one in self.tokens]} if tokens else {})


def _plain(value: Any) -> Any:
    if isinstance(value, Score | NullHypothesis | Layers | RoundTrip):
        return {name: _plain(one) for name, one in asdict(value).items()}
    return list(value) if isinstance(value, tuple) else value


def _token(token: TokenVerdict) -> dict[str, Any]:
    fields = token._asdict()
    if token.g_values:
        return fields | {"g_values": list(token.g_values)}
    del fields["g_values"]
    return fields
