"""Attacks that let the model write: it says the same in other words, or goes on without the mark.

Knows how to ask a model. Its words are drawn without a watermark, from the attack's seed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from engine.errors import PlaygroundError
from engine.prompt import Chat
from engine.trace import Trace
from playground.lab import Playground
from playground.requests import StrategyChoice
from playground.watermarks.attacks.registry import Stopped, Target, attack

_SENTENCE = re.compile(r"\s*\S.*?(?:[.!?][\"”’)]*(?=\s)|\Z)", re.S)
_ROOM = 1.5  # how much longer than a sentence its rewriting may get, in tokens
_SHARPNESS = {"temperature": 0.7}  # small models that rewrite lose the thread when drawn freely


@attack(
    "rewrite",
    "Rewrite with the model",
    strength="the chance of each sentence to be rewritten",
    usual=0.5,
    writes=True,
)
def rewrite(target: Target, strength: float, random: Random) -> str:
    """Lets the model itself say sentences in other words, without the mark: how well it keeps
    their meaning is the model's affair."""
    if len(target.text) > (most := target.lab.limits.prompt_characters):
        raise PlaygroundError(
            f"the text has {len(target.text)} characters; at most {most} are rewritten"
        )
    sentences = _SENTENCE.findall(target.text)
    chosen = [place for place in range(len(sentences)) if random.random() < strength]
    batch = target.lab.limits.rows
    for start in range(0, len(chosen), batch):
        places = chosen[start : start + batch]
        written = _rewritten(target, [sentences[place] for place in places], random)
        for place, text in zip(places, written, strict=True):
            sentences[place] = text
    rest = target.text[len("".join(_SENTENCE.findall(target.text))) :]
    return "".join(sentences) + rest


@attack(
    "continue",
    "Go on without the mark",
    strength="the share of unmarked tokens in the result",
    highest=0.75,
    usual=0.5,
    writes=True,
)
def go_on(target: Target, strength: float, random: Random) -> Sequence[int]:
    """Lets the model continue the text without the mark, which dilutes the score as human text
    does."""
    new = round(len(target.ids) * strength / (1 - strength))
    if not new:
        return target.ids
    if target.lab.model.is_encoder_decoder:
        raise PlaygroundError(f"{target.lab.model.name} answers a text and does not go on from it")
    settings = {"max_new_tokens": new, "min_new_tokens": new, "seed": random.getrandbits(32)}
    [trace] = _written(target, [(target.text, ("sample", settings))])
    return [*target.ids, *trace.sequences[0].token_ids]


def _rewritten(target: Target, sentences: Sequence[str], random: Random) -> list[str]:
    """Each sentence in the model's words, with the space that stood before it."""
    most = target.lab.limits.max_new_tokens
    asked = []
    for sentence in sentences:
        room = min(most, round(_ROOM * len(target.lab.speller.ids(sentence))) + 8)
        settings = {**_SHARPNESS, "max_new_tokens": room, "seed": random.getrandbits(32)}
        asked.append((_request(target.lab, sentence.strip()), ("sample", settings)))
    texts = []
    for sentence, trace in zip(sentences, _written(target, asked), strict=True):
        special = target.lab.model.tokenizer.all_special_ids
        ids = [id for id in trace.sequences[0].token_ids if id not in special]
        words = target.lab.speller.text(ids).strip() or sentence.strip()
        texts.append(sentence[: len(sentence) - len(sentence.lstrip())] + words)
    return texts


def _request(lab: Playground, sentence: str) -> str | Chat:
    if lab.model.tokenizer.chat_template:
        wish = f"Say this in other words, in one sentence:\n{sentence}"
        return [{"role": "user", "content": wish}]
    return f"{sentence}\nIn other words:"


def _written(target: Target, asked: Sequence[tuple[str | Chat, StrategyChoice]]) -> list[Trace]:
    """What the model writes after each prompt, all at once."""
    ended: dict[int, Trace] = {}
    for update in target.lab.stream_each(asked, stop=target.stop):
        if target.on_tokens is not None:
            target.on_tokens(len(update.steps))
        if update.trace is not None:
            ended[update.run] = update.trace
    traces = [ended[run] for run in range(len(asked))]
    for trace in traces:
        if trace.stop.rule == "cancelled":
            raise Stopped
        if trace.error:
            raise PlaygroundError(trace.error)
    return traces
