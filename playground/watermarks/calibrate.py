"""Calibrates a watermark detector: its detection rate, its false positive rate, and the cost of the
watermark in perplexity.

Human-written texts give the false positives, generated texts the rest. Texts and scores are cached:
another threshold needs no new texts, and a stopped calibration resumes.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from engine.settings import Limits
from engine.watermark import detector
from engine.watermark.detection import Detection
from playground.lab import Playground
from playground.stopping import Stop, Stopped, check_stop
from playground.watermarks import roc
from playground.watermarks.calibration_result import (
    POWERS,
    Calibration,
    Needed,
    Progress,
    Sample,
    at_length,
    cost,
)
from playground.watermarks.calibration_spec import CalibrationSpec, check
from playground.watermarks.disk_cache import DiskCache, default_folder
from playground.watermarks.human_texts import Passage, edition, passages
from playground.watermarks.text_generation import GeneratedText, GenerationSpec, generate_texts

__all__ = ["Calibration", "CalibrationSpec", "Progress", "calibrate"]

_HUMAN = "scoring human-written texts"
_TOGETHER = 50  # texts whose green lists are computed at once: many texts share them
_SPARE = 4  # extra tokens: where a text is cut, the last ones may be tokenized differently
_WIDE = Limits(detect_characters=10**8, green_lists=10**8)


def calibrate(
    lab: Playground,
    spec: CalibrationSpec | None = None,
    *,
    stop: Stop | None = None,
    folder: Path | None = None,
    keep: bool = True,
) -> Iterator[Progress]:
    """Measure; the last progress has the `Calibration`, unless ``stop`` was set.

    ``folder`` is for cached texts and scores, by default in the user's cache folder; ``keep`` False
    disables the cache.
    """
    spec = spec or CalibrationSpec()
    check(spec, lab.limits)
    cache = DiskCache(lab.model, (folder or default_folder()) if keep else None)
    return _Calibrating(lab, spec, cache, stop).run()


class _Scored(NamedTuple):
    """A generated text, and its z-score after every token."""

    sample: Sample
    after: list[float]


class _Calibrating:
    """A running calibration."""

    def __init__(
        self, lab: Playground, spec: CalibrationSpec, cache: DiskCache, stop: Stop | None
    ) -> None:
        self._lab = lab
        self._spec = spec
        self._cache = cache
        self._stop = stop

    def run(self) -> Iterator[Progress]:
        """Run all stages."""
        began, spec = time.perf_counter(), self._spec
        try:
            human = yield from self._human()
            groups = [(yield from self._marked(spec.bias, spec.texts))]
            for bias in spec.biases:
                if bias != spec.bias:
                    groups.append((yield from self._marked(bias, spec.others)))
        except Stopped:
            return
        seconds = time.perf_counter() - began
        result = _result(self._lab.model.name, spec, human, groups, seconds)
        yield Progress("done", 1, 1, "", result)

    def _human(self) -> Generator[Progress, None, list[Sample]]:
        """The scores of the human-written texts under every key."""
        spec, texts = self._spec, _human_texts(self._lab, self._spec.length)
        samples: list[Sample] = []
        for key in range(spec.keys):
            detection = spec.detection(key)
            name = {"what": "human", "from": edition(), "detection": detection, "at": list(spec.at)}
            cached = self._cache.get(name)
            if cached is None:
                cached = []
                for at, text in enumerate(texts):
                    check_stop(self._stop)
                    yield Progress(_HUMAN, len(samples) + at, spec.keys * len(texts), "texts")
                    if at % _TOGETHER == 0:  # fills the cache of green lists for all of them
                        joined = " ".join(one.text for one in texts[at : at + _TOGETHER])
                        detector.detect(self._lab.model, joined, limits=_WIDE, **detection)
                    found = detector.detect(self._lab.model, text.text, **detection)
                    after = _after(found, spec.length)
                    cached.append([after[length - 1] for length in spec.at])
                self._cache.put(name, cached)
            pairs = zip(texts, cached, strict=True)
            samples += [Sample(text.source, tuple(scores)) for text, scores in pairs]
        return samples

    def _marked(self, bias: float | None, texts: int) -> Generator[Progress, None, list[_Scored]]:
        """The scores of texts generated with a bias; 0 is no watermark."""
        spec = self._spec
        generation = GenerationSpec(texts, spec.length, spec.seed, spec.settings, spec.mark(bias))
        mark = "without a watermark" if bias == 0 else "" if bias is None else f"with bias {bias:g}"
        stage = f"generating texts {mark}".strip()
        generated = yield from generate_texts(self._lab, generation, stage, self._cache, self._stop)
        name = {**generation.key(0, texts), "what": "scores", "detection": spec.detection()}
        cached = self._cache.get(name)
        if cached is None:
            cached = []
            for text in generated:
                check_stop(self._stop)
                yield Progress(f"scoring them, {mark}".strip(", "), len(cached), texts, "texts")
                found = detector.detect(self._lab.model, text.ids, **spec.detection())
                assert found.round_trip is not None
                cached.append([_after(found, spec.length), found.round_trip.score.z_score])
            self._cache.put(name, cached)
        return [
            _Scored(_sample(spec, text, bias, after, as_text), after)
            for text, (after, as_text) in zip(generated, cached, strict=True)
        ]


def _sample(
    spec: CalibrationSpec,
    text: GeneratedText,
    bias: float | None,
    after: Sequence[float],
    as_text: float,
) -> Sample:
    scores = tuple(after[length - 1] for length in spec.at)
    return Sample(text.source, scores, bias, as_text, text.surprisal)


def _human_texts(lab: Playground, length: int) -> list[Passage]:
    """The passages cut to the length; short ones are joined."""
    texts: list[Passage] = []
    parts: list[Passage] = []
    for passage in passages():
        parts.append(passage)
        whole = "\n\n".join(part.text for part in parts)
        ids = lab.model.tokenizer(whole, add_special_tokens=False).input_ids
        if len(ids) >= length + _SPARE:
            text = lab.token_decoder.text(ids[: length + _SPARE], at_start=True)
            texts.append(Passage(text, "; ".join(part.source for part in parts)))
            parts = []
    return texts


def _after(found: Detection, length: int) -> list[float]:
    """The z-score after every token; one that is not scored leaves it unchanged."""
    known = {point.position: point.z_score for point in detector.over_length(found)}
    after, z = [], 0.0
    for position in range(length):
        z = known.get(position, z)
        after.append(z)
    return after


def _result(
    model: str,
    spec: CalibrationSpec,
    human: Sequence[Sample],
    groups: Sequence[Sequence[_Scored]],
    seconds: float,
) -> Calibration:
    marked = [scored.sample for scored in groups[0]]
    columns = [
        [[sample.scores[place] for sample in samples] for samples in (human, marked)]
        for place in range(len(spec.at))
    ]
    shares = roc.power([scored.after for scored in groups[0]], spec.threshold)
    costs = [cost([one.sample for one in group], spec.threshold) for group in groups]
    return Calibration(
        model=model,
        spec=spec.to_dict(),
        threshold=spec.threshold,
        human_texts=len(human) // spec.keys,
        human_scores=len(human),
        by_length=tuple(
            at_length(length, null, scores, spec.threshold)
            for length, (null, scores) in zip(spec.at, columns, strict=True)
        ),
        roc=roc.roc(*columns[-1]),
        power=shares,
        needed=tuple(Needed(power, roc.needed(shares, power)) for power in POWERS),
        as_text=roc.above([one.as_text or 0.0 for one in marked], spec.threshold),
        costs=tuple(sorted(costs, key=lambda cost: cost.bias or 0.0)),
        seconds=seconds,
        human=tuple(human),
        marked=tuple(one.sample for group in groups for one in group),
    )
