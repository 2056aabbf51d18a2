"""Writes a strategy as a folder for transformers' `generate(custom_generate=...)`.

transformers loads a folder of modules with relative imports, so the strategy and every module that
it imports from here are copied into one folder, ``engine.trie.node`` as ``engine_trie_node.py``.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from engine.errors import PlaygroundError, did_you_mean
from engine.settings import Limits
from engine.strategy import Strategy
from strategies import find, registered

REQUIREMENTS = ("torch>=2.11", "transformers>=5.17")

_OURS = re.compile(r"^(\s*)from (engine|strategies)\.([\w.]+) import", re.MULTILINE)

_GENERATE = '''"""{summary}

Loaded by transformers for ``model.generate(..., custom_generate=...)``.
"""

from .{name} import generate as _decode


def generate(model, **arguments):
    """Call `generate` as usual, with the strategy as the decoding function."""
    return model.generate(**arguments, custom_generate=_decode)
'''

_README = """---
library_name: transformers
license: apache-2.0
tags:
- custom_generate
---

# {title}

{description}

{sources}

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("HuggingFaceTB/SmolLM2-135M-Instruct")
model = AutoModelForCausalLM.from_pretrained("HuggingFaceTB/SmolLM2-135M-Instruct")
inputs = tokenizer("The quick brown fox", return_tensors="pt")
output = model.generate(
    **inputs,
    custom_generate="{name}",  # this folder, or your repository on the Hub
    trust_remote_code=True,
{arguments}    max_new_tokens=48,
)
print(tokenizer.decode(output[0]))
```

| argument | description | values |
|---|---|---|
{settings}

The code in `custom_generate/` is complete; it only needs {requirements}.
"""


def write(strategy: str, folder: Path) -> list[Path]:
    """Write the strategy's folder; return the files."""
    found = find(strategy)
    module = sys.modules[found.decode.__module__]
    if not _is_recipe(found):
        recipes = [id for id, other in registered().items() if _is_recipe(other)]
        near = did_you_mean(strategy, recipes)
        raise PlaygroundError(
            f"{strategy} cannot be written as a recipe"
            f"{near or '; strategies that can: ' + ', '.join(recipes)}"
        )
    texts = {f"{_flat(part.__name__)}.py": _relative(part) for part in _parts(module)}
    texts["generate.py"] = _GENERATE.format(summary=found.summary, name=_flat(module.__name__))
    texts["requirements.txt"] = "".join(f"{line}\n" for line in REQUIREMENTS)
    files = {folder / "custom_generate" / name: text for name, text in texts.items()}
    files[folder / "README.md"] = _readme(found, module)
    for path, text in files.items():
        _put(path, text)
    return list(files)


def _is_recipe(strategy: Strategy) -> bool:
    return hasattr(sys.modules[strategy.decode.__module__], "generate")


def _parts(module: ModuleType) -> Iterator[ModuleType]:
    """The module, and every module of this repository that it imports, directly or not."""
    found = {module.__name__: module}
    queue = [module]
    while queue:
        for _, package, name in _OURS.findall(inspect.getsource(queue.pop())):
            full = f"{package}.{name}"
            if full not in found:
                __import__(full)
                found[full] = sys.modules[full]
                queue.append(found[full])
    yield from found.values()


def _relative(module: ModuleType) -> str:
    return _OURS.sub(
        lambda found: f"{found[1]}from .{_flat(f'{found[2]}.{found[3]}')} import",
        inspect.getsource(module),
    )


def _flat(name: str) -> str:
    """A module's name in the flat folder; strategies keep their names."""
    package, _, module = name.partition(".")
    return module if package == "strategies" else name.replace(".", "_")


def _readme(found: Strategy, module: ModuleType) -> str:
    settings, limits = found.own_settings.values(), Limits()
    rows = [f"| `{item.name}` | {item.help} | {item.allowed(limits)} |" for item in settings]
    _, _, sources = (inspect.getdoc(module) or "").partition("\n\n")
    return _README.format(
        title=found.id.replace("_", " ").capitalize(),
        description=found.description,
        sources=sources,
        name=found.id,
        # All arguments: the model's generation config would replace those left out.
        arguments="".join(
            f"    {item.name}={item.default!r},\n" for item in settings if item.default is not None
        ),
        settings="\n".join(rows),
        requirements=" and ".join(REQUIREMENTS),
    )


def _put(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PlaygroundError(f"cannot write {path}: {error.strerror}") from error
