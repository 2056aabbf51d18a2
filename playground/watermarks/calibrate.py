"""What a watermark detector is worth: how often it finds a mark, how often it is wrong, and what
the mark costs.

Knows how to get the scores: human-written texts for false alarms, texts of the model for the rest.
Texts and scores are kept in the user's cache folder, so another threshold costs nothing, and what
was stopped goes on where it was.
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
from playground.watermarks import roc as rates
from playground.watermarks.attacks.registry import Stop, Stopped
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
from playground.watermarks.text_generation import Order, Written, write

__all__ = ["Calibration", "CalibrationSpec", "Progress", "calibrate"]

_HUMAN = "scoring human-written texts"
_TOGETHER = 50  # texts whose green lists are drawn at once: common words' serve many of them
_SPARE = 4  # tokens past the length asked for: where a text is cut, its last ones may be read anew
_WIDE = Limits(detect_characters=10**8, green_lists=10**8)


def calibrate(
    lab: Playground,
    spec: CalibrationSpec | None = None,
    *,
    stop: Stop | None = None,
    folder: Path | None = None,
    keep: bool = True,
) -> Iterator[Progress]:
    """Measure, and tell how far it has come; the last word has the `Calibration`.

    Setting ``stop`` ends it within a tick, without one. ``folder`` is where texts and scores are
    kept, the user's cache folder where none is given; ``keep`` False keeps nothing.
    """
    spec = spec or CalibrationSpec()
    check(spec, lab.limits)
    shelf = DiskCache(lab.model, (folder or default_folder()) if keep else None)
    return _Work(lab, spec, shelf, stop).run()


class _Scored(NamedTuple):
    """A text of the model, and its z-score after every token."""

    sample: Sample
    after: list[float]


class _Work:
    """One calibration under way."""

    def __init__(
        self, lab: Playground, spec: CalibrationSpec, shelf: DiskCache, stop: Stop | None
    ) -> None:
        self._lab = lab
        self._spec = spec
        self._shelf = shelf
        self._stop = stop

    def run(self) -> Iterator[Progress]:
        """The stages, one after the other."""
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
        """The scores of human texts under every key."""
        spec, texts = self._spec, _human_texts(self._lab, self._spec.length)
        samples: list[Sample] = []
        for key in range(spec.keys):
            told = spec.detection(key)
            name = {"what": "human", "from": edition(), "detection": told, "at": list(spec.at)}
            kept = self._shelf.get(name)
            if kept is None:
                kept = []
                for at, text in enumerate(texts):
                    self._check_stop()
                    yield Progress(_HUMAN, len(samples) + at, spec.keys * len(texts), "texts")
                    if at % _TOGETHER == 0:  # what several texts share is then known for all
                        joined = " ".join(one.text for one in texts[at : at + _TOGETHER])
                        detector.detect(self._lab.model, joined, limits=_WIDE, **told)
                    found = detector.detect(self._lab.model, text.text, **told)
                    after = _after(found, spec.length)
                    kept.append([after[length - 1] for length in spec.at])
                self._shelf.put(name, kept)
            pairs = zip(texts, kept, strict=True)
            samples += [Sample(text.source, tuple(scores)) for text, scores in pairs]
        return samples

    def _marked(self, bias: float | None, texts: int) -> Generator[Progress, None, list[_Scored]]:
        """The scores of texts that the model writes with a bias; 0 is without the mark."""
        spec = self._spec
        order = Order(texts, spec.length, spec.seed, spec.settings, spec.mark(bias))
        mark = "without a mark" if bias == 0 else "" if bias is None else f"with bias {bias:g}"
        stage = f"writing texts {mark}".strip()
        written = yield from write(self._lab, order, stage, self._shelf, self._stop)
        name = {**order.key(0, texts), "what": "scores", "detection": spec.detection()}
        kept = self._shelf.get(name)
        if kept is None:
            kept = []
            for text in written:
                self._check_stop()
                yield Progress(f"scoring them, {mark}".strip(", "), len(kept), texts, "texts")
                found = detector.detect(self._lab.model, text.ids, **spec.detection())
                assert found.round_trip is not None
                kept.append([_after(found, spec.length), found.round_trip.score.z_score])
            self._shelf.put(name, kept)
        return [
            _Scored(_sample(spec, text, bias, after, as_text), after)
            for text, (after, as_text) in zip(written, kept, strict=True)
        ]

    def _check_stop(self) -> None:
        if self._stop is not None and self._stop.is_set():
            raise Stopped


def _sample(
    spec: CalibrationSpec, text: Written, bias: float | None, after: Sequence[float], as_text: float
) -> Sample:
    scores = tuple(after[length - 1] for length in spec.at)
    return Sample(text.source, scores, bias, as_text, text.surprisal)


def _human_texts(lab: Playground, length: int) -> list[Passage]:
    """The passages, joined where one alone is too short and cut where the length is reached."""
    texts: list[Passage] = []
    parts: list[Passage] = []
    for passage in passages():
        parts.append(passage)
        whole = "\n\n".join(part.text for part in parts)
        ids = lab.model.tokenizer(whole, add_special_tokens=False).input_ids
        if len(ids) >= length + _SPARE:
            text = lab.speller.text(ids[: length + _SPARE], fresh=True)
            texts.append(Passage(text, "; ".join(part.source for part in parts)))
            parts = []
    return texts


def _after(found: Detection, length: int) -> list[float]:
    """The z-score after every token; one that is not scored, or not there, leaves it as it was."""
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
    shares = rates.power([scored.after for scored in groups[0]], spec.threshold)
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
        roc=rates.roc(*columns[-1]),
        power=shares,
        needed=tuple(Needed(power, rates.needed(shares, power)) for power in POWERS),
        as_text=rates.above([one.as_text or 0.0 for one in marked], spec.threshold),
        costs=tuple(sorted(costs, key=lambda told: told.bias or 0.0)),
        seconds=seconds,
        human=tuple(human),
        marked=tuple(one.sample for group in groups for one in group),
    )
