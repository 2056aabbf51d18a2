"""Attacks with the model: it paraphrases the text, or continues it, without the watermark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from engine.errors import PlaygroundError
from engine.prompt import Chat
from engine.trace import Trace
from playground.lab import Playground
from playground.requests import StrategyChoice
from playground.stopping import Stopped
from playground.watermarks.attacks.registry import Target, attack

_SENTENCE = re.compile(r"\s*\S.*?(?:[.!?][\"”’)]*(?=\s)|\Z)", re.S)
_GROWTH = 1.5  # how much longer than the sentence its paraphrase may be, in tokens
_SAMPLING = {"temperature": 0.7}  # at 1 small models lose the meaning


@attack(
    "rewrite",
    "Rewrite with the model",
    strength="the probability that each sentence is rewritten",
    default=0.5,
    writes=True,
)
def rewrite(target: Target, strength: float, random: Random) -> str:
    """Lets the model paraphrase sentences without the watermark; how well it keeps their meaning
    depends on the model."""
    if len(target.text) > (most := target.lab.limits.prompt_characters):
        raise PlaygroundError(
            f"the text has {len(target.text)} characters; at most {most} are rewritten"
        )
    sentences = _SENTENCE.findall(target.text)
    chosen = [place for place in range(len(sentences)) if random.random() < strength]
    batch = target.lab.limits.rows
    for start in range(0, len(chosen), batch):
        places = chosen[start : start + batch]
        paraphrases = _rewritten(target, [sentences[place] for place in places], random)
        for place, text in zip(places, paraphrases, strict=True):
            sentences[place] = text
    rest = target.text[len("".join(_SENTENCE.findall(target.text))) :]
    return "".join(sentences) + rest


@attack(
    "continue",
    "Continue without the watermark",
    strength="the share of unmarked tokens in the result",
    highest=0.75,
    default=0.5,
    writes=True,
)
def continue_text(target: Target, strength: float, random: Random) -> Sequence[int]:
    """Lets the model continue the text without the watermark, which dilutes the score as human
    text does."""
    new = round(len(target.ids) * strength / (1 - strength))
    if not new:
        return target.ids
    if target.lab.model.is_encoder_decoder:
        raise PlaygroundError(
            f"{target.lab.model.name} is an encoder-decoder and cannot continue a text"
        )
    settings = {"max_new_tokens": new, "min_new_tokens": new, "seed": random.getrandbits(32)}
    [trace] = _generated(target, [(target.text, ("sample", settings))])
    return [*target.ids, *trace.sequences[0].token_ids]


def _rewritten(target: Target, sentences: Sequence[str], random: Random) -> list[str]:
    """A paraphrase of each sentence, with the sentence's leading white space."""
    most = target.lab.limits.max_new_tokens
    runs = []
    for sentence in sentences:
        room = min(most, round(_GROWTH * len(target.lab.token_decoder.ids(sentence))) + 8)
        settings = {**_SAMPLING, "max_new_tokens": room, "seed": random.getrandbits(32)}
        runs.append((_prompt(target.lab, sentence.strip()), ("sample", settings)))
    texts = []
    for sentence, trace in zip(sentences, _generated(target, runs), strict=True):
        special = target.lab.model.tokenizer.all_special_ids
        ids = [id for id in trace.sequences[0].token_ids if id not in special]
        words = target.lab.token_decoder.text(ids).strip() or sentence.strip()
        texts.append(sentence[: len(sentence) - len(sentence.lstrip())] + words)
    return texts


def _prompt(lab: Playground, sentence: str) -> str | Chat:
    if lab.model.tokenizer.chat_template:
        message = f"Say this in other words, in one sentence:\n{sentence}"
        return [{"role": "user", "content": message}]
    return f"{sentence}\nIn other words:"


def _generated(target: Target, runs: Sequence[tuple[str | Chat, StrategyChoice]]) -> list[Trace]:
    """The model's texts for all prompts, side by side."""
    ended: dict[int, Trace] = {}
    for update in target.lab.stream_each(runs, stop=target.stop):
        if target.on_tokens is not None:
            target.on_tokens(len(update.steps))
        if update.trace is not None:
            ended[update.run] = update.trace
    traces = [ended[run] for run in range(len(runs))]
    for trace in traces:
        if trace.stop.rule == "cancelled":
            raise Stopped
        if trace.error:
            raise PlaygroundError(trace.error)
    return traces
