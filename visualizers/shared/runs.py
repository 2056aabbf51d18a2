"""What figures read from traces: the path of the best sequence, run labels, texts of token ids."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from engine.trace import Distribution, Step, Trace

_DISCARDED = frozenset({"pruned", "rejected"})

TokenTexts = Mapping[int, str]


def best_path(trace: Trace) -> tuple[Step, ...]:
    """The steps of the best sequence; if none was returned, the longest path not discarded."""
    if trace.sequences:
        return tuple(trace.steps[id] for id in trace.sequences[0].steps)
    depth: dict[int | None, int] = {None: 0}
    for step in trace.steps:
        depth[step.id] = depth[step.parent] + 1
    alive = [step.id for step in trace.steps if step.event not in _DISCARDED]
    return trace.path(max(alive, key=lambda id: depth[id], default=None))


def token_texts(trace: Trace) -> TokenTexts:
    """The texts of all tokens that occur in a trace, by token id."""
    texts = {token.id: token.text for token in (*trace.prompt_tokens, *trace.prefix)}
    distributions: dict[int, Distribution] = {}  # steps share distributions: read each once
    for step in trace.steps:
        texts[step.token.id] = step.token.text
        if step.distribution:
            distributions[id(step.distribution)] = step.distribution
    for distribution in distributions.values():
        texts.update((item.token.id, item.token.text) for item in distribution.candidates)
    return texts


def token_text(token: int, texts: TokenTexts) -> str:
    """The text of a token id, or ``token 123`` where the trace does not hold its text."""
    return texts.get(token, f"token {token}")


def labels(traces: Sequence[Trace]) -> tuple[str, ...]:
    """A unique label for each trace: its strategy and the settings that differ from the others'."""
    names = [
        " · ".join([trace.strategy, *_start(trace), *_settings(trace, traces)]) for trace in traces
    ]
    seen: Counter[str] = Counter()
    for index, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[index] = f"{name} ({seen[name]})"
    return tuple(names)


def _start(trace: Trace) -> list[str]:
    """The first token of a run that continues an existing text."""
    return [f"from token {len(trace.prefix) + 1}"] if trace.prefix else []


def _settings(trace: Trace, traces: Sequence[Trace]) -> list[str]:
    """The settings to add: none where strategy and start are unique in the comparison."""
    own = (trace.strategy, len(trace.prefix))
    similar = [other for other in traces if (other.strategy, len(other.prefix)) == own]
    if len(similar) == 1 < len(traces):
        return []
    others = [{**other.settings, "seed": other.seed} for other in similar if other is not trace]
    return _differing({**trace.settings, "seed": trace.seed}, others)


_UNINFORMATIVE = {"max_new_tokens", "seed"}  # in the label of a trace without any other
_MISSING = object()


def _differing(own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> list[str]:
    """At most three settings that differ from another trace's; all settings of a single trace."""
    if others:
        names = [n for n in own if any(other.get(n, _MISSING) != own[n] for other in others)]
    else:
        names = [n for n in own if n not in _UNINFORMATIVE]
    parts = [f"{name}={_short(own[name])}" for name in names[:3]] + ["…"] * (len(names) > 3)
    return [", ".join(parts)] if parts else []


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 24 else text[:23] + "…"
