"""Python programs that repeat a run: in plain transformers if it gives the same tokens, otherwise
with the playground, with a comment that says why."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from transformers import GenerationConfig

from engine.prompt import Chat
from engine.settings import Limits
from playground.export.literals import WIDTH, Imports, assigned, call
from playground.export.program import DRAFTING, NATIVE, Program, plain, recipe
from playground.lab import Playground
from playground.requests import Request, StrategyChoice, TextOrTokens


def code(
    lab: Playground,
    prompt: str | Chat,
    choice: StrategyChoice,
    *,
    prefix: TextOrTokens = (),
    **shared: Any,
) -> str:
    """The program that repeats one run and prints its text.

    ``prefix`` and ``shared`` are as for `Playground.compare`.
    """
    comparison = lab.parse(prompt, [choice], prefix=prefix, **shared)
    [request] = comparison.requests
    reason = _why_not_transformers(request)
    if reason is None:
        return Program(lab.model, request, comparison.prompt.prefix).text(prompt)
    lines = textwrap.wrap(f"{reason}; this program uses the playground.", WIDTH - 2)
    comment = "".join(f"# {line}\n" for line in lines)
    return f"{comment}#\n{python_api(lab, prompt, [choice], prefix=prefix, **shared)}"


def python_api(
    lab: Playground,
    prompt: str | Chat,
    choices: Sequence[StrategyChoice],
    *,
    prefix: TextOrTokens = (),
    **shared: Any,
) -> str:
    """The program that repeats a whole comparison with the playground."""
    requests = lab.parse(prompt, choices, prefix=prefix, **shared).requests
    imports = Imports()
    imports.add("playground", "Playground")
    messages = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
    runs = list(map(_run, choices, requests))
    settings = {name: value for name, value in shared.items() if value is not None}
    if prefix:
        settings["prefix"] = prefix
    arguments = messages, plain(runs, imports)
    compare = call("lab.compare", arguments, plain(settings, imports), long=True)
    lines = [
        assigned("lab", call("Playground", (lab.model.name,), _limits(lab, imports))),
        assigned("traces", compare),
        *_print(requests),
    ]
    return imports.needs + str(imports) + "\n".join(lines) + "\n"


def _why_not_transformers(request: Request) -> str | None:
    """Why plain transformers would give other tokens; None if it gives the same."""
    id, settings = request.strategy.id, request.settings
    if id in DRAFTING:
        if settings.get("do_sample"):
            return "With drafts, transformers samples other tokens from the same distribution"
        if settings.get("stop_strings"):
            return "transformers checks stop strings only at the end of a drafting round"
        if id == "speculative" and not settings.get("assistant_model"):
            return "transformers does not let a model draft for itself"
    elif id == "beam_sample" and settings["num_beams"] == 1:
        return "transformers samples a single beam without beam search"
    elif id not in NATIVE and recipe(request.strategy) is None:
        return f"transformers has no {id}"
    return None


def _run(choice: StrategyChoice, request: Request) -> Any:
    """A strategy as `compare` takes it, as short as possible."""
    if isinstance(choice, GenerationConfig):
        return request.strategy.id, request.settings
    if isinstance(choice, str):
        return choice
    id, settings = choice
    given = {name: value for name, value in settings.items() if value is not None}
    return (id, given) if given else id


def _limits(lab: Playground, imports: Imports) -> dict[str, Any]:
    """The lab's limits that are wider than the defaults."""
    defaults = vars(Limits())
    wider = {name: limit for name, limit in vars(lab.limits).items() if limit > defaults[name]}
    if not wider:
        return {}
    imports.add("engine.settings", "Limits")
    return {"limits": call("Limits", keywords=wider)}


def _print(requests: Sequence[Request]) -> Iterator[str]:
    """Lines that print every text, below the strategy's name if there are several runs."""
    yield "for trace in traces:"
    if len(requests) > 1:
        yield '    print(f"# {trace.strategy}")'
    if any(request.settings.get("num_return_sequences", 1) > 1 for request in requests):
        yield "    for sequence in trace.sequences:"
        yield "        print(sequence.text)"
    else:
        yield "    print(trace.text)"
