"""How the tokens are spelled that a strategy's notes name by their ids.

Knows every spelling a trace has. Refuses to know a tokenizer: what no prompt, step or distribution
of the trace spells is called by its number.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.trace import Distribution, Trace

Spellings = Mapping[int, str]


def spellings(trace: Trace) -> Spellings:
    """The tokens a trace spells, by their ids."""
    known = {token.id: token.text for token in (*trace.prompt_tokens, *trace.prefix)}
    read: dict[int, Distribution] = {}  # steps share distributions
    for step in trace.steps:
        known[step.token.id] = step.token.text
        if step.distribution:
            read[id(step.distribution)] = step.distribution
    for distribution in read.values():
        known.update((item.token.id, item.token.text) for item in distribution.candidates)
    return known


def called(token: int, known: Spellings) -> str:
    """A token's spelling, or its number."""
    return known.get(token, f"token {token}")
