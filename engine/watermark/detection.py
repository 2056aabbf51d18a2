"""The record of a detection: what was counted, token by token, and what it amounts to.

Knows no models and no schemes; it imports the standard library only. Whoever shows, saves or scans
a detection reads this.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from engine.watermark.statistics import MARKED, TOO_SHORT, Chance, Score

Verdict = Literal["green", "red", "unscored"]
# Too few tokens before it, an n-gram that was counted already, or outside the text: the token that
# starts it, and all from the one that ends it.
Why = Literal["", "context", "repeated", "bos", "eos"]


class TokenVerdict(NamedTuple):
    """One token of a judged text. ``value`` is its part in the score, whoever counts repeats:
    1 or 0 for green and red, for SynthID the weighted mean of its ``g_values``."""

    id: int
    text: str
    verdict: Verdict
    why: Why = ""
    value: float | None = None
    repeated: bool = False  # its n-gram, for SynthID its context, stood in the text before
    redrawn: bool = False  # its colour was drawn before, for this n-gram or for another
    g_values: tuple[int, ...] = ()  # one per layer


@dataclass(frozen=True)
class Layers:
    """What SynthID's g-values say: plain and weighted mean, and what each must exceed at this
    length for the z-score asked for."""

    ones: int
    g_values: int
    share: float  # of ones in the sampling table: what chance gives
    mean: float
    mean_z: float
    mean_p: float  # exact: the ones are binomial
    mean_threshold: float
    weighted_mean: float
    weighted_z: float
    weighted_p: float  # by the normal curve
    weighted_threshold: float
    by_layer: tuple[float, ...]  # the mean of each layer's g-values, first layer first


@dataclass(frozen=True)
class RoundTrip:
    """What becomes of a run's tokens once they are only a text: decoded, and encoded again."""

    tokens: int  # as the run wrote them
    survived: int  # of those, how many are read again with the same id at the same characters
    score: Score  # of the text as it is read again
    verdict: str

    @property
    def lost(self) -> int:
        """How many tokens are not read again as they were written."""
        return self.tokens - self.survived


@dataclass(frozen=True)
class Detection:
    """What the detector counted; ``z_score`` and ``p_value`` are against an unmarked text.

    The first figures are counted the way that was asked for, ``with_repeats`` and
    ``without_repeats`` either way, ``independent`` without any colour that was drawn before: the
    list of ``lefthash`` hangs on one token, however wide its context. ``marked`` is what
    `WatermarkDetector` predicts; ``verdict`` also knows when there was too little to say, or only
    the same again.
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
    chance: Chance
    tokens: tuple[TokenVerdict, ...] = field(repr=False)
    layers: Layers | None = None
    round_trip: RoundTrip | None = None

    @property
    def reason(self) -> str:
        """The verdict as a sentence."""
        counted = f"{self.tokens_scored} of {len(self.tokens)} tokens were scored"
        if not self.tokens_scored:
            before = f"this scheme scores a token by the {self._context} before it"
            return f"a text of {len(self.tokens)} tokens is {TOO_SHORT}; {before}"
        if self.verdict == TOO_SHORT:
            own = f"{self.independent.tokens_scored} of {len(self.tokens)} tokens"
            return f"{TOO_SHORT}: all green would not be enough where {own} have draws of their own"
        z = f"z is {self.z_score:.2f} where {self.z_threshold:g} is asked for"
        if self.marked and self.verdict != MARKED:
            once = f"it is {self.independent.z_score:.2f} where each draw counts once"
            return f"{self.verdict}: {counted}, {z}, but {once}: the same again is no evidence"
        odds = f"chance alone does as much with probability {self.exact_p:.2g}"
        return f"{self.verdict}: {counted}, {z}, and {odds}"

    @property
    def _context(self) -> int:
        ngram: int | None = self.settings.get("ngram_len")
        return ngram - 1 if ngram else int(self.settings["context_width"])

    def to_dict(self, *, tokens: bool = True) -> dict[str, Any]:
        """The fields as JSON values; a long text's tokens may be left out."""
        fields = {name: _plain(value) for name, value in vars(self).items() if name != "tokens"}
        fields["reason"] = self.reason
        return fields | ({"tokens": [_token(one) for one in self.tokens]} if tokens else {})


def _plain(value: Any) -> Any:
    if isinstance(value, Score | Chance | Layers | RoundTrip):
        return {name: _plain(one) for name, one in asdict(value).items()}
    return list(value) if isinstance(value, tuple) else value


def _token(token: TokenVerdict) -> dict[str, Any]:
    told = token._asdict()
    if token.g_values:
        return told | {"g_values": list(token.g_values)}
    del told["g_values"]
    return told
