"""Python processes that start in a moment: forks of one that has imported the libraries.

A new interpreter spends seconds on importing torch, transformers and Gradio. `start` and `run` ask
one process, which has imported them and nothing of this repository, to fork. The fork sets its
folder, variables and arguments as a new interpreter would and runs the program.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_LIBRARIES = (
    *("torch", "gradio", "gradio.mcp", "plotly.graph_objects", "plotly.io", "jinja2"),
    *("transformers.generation", "transformers.modeling_utils", "transformers.conversion_mapping"),
    *("transformers.models.auto.modeling_auto", "transformers.models.llama.modeling_llama"),
)


@dataclass(frozen=True)
class Process:
    """A process that was started."""

    pid: int

    def poll(self) -> int | None:
        """Its exit status, or None while it runs."""
        return _ask({"poll": self.pid})

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)

    def wait(self, timeout: float) -> int:
        """Wait for its end; returns the exit status."""
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            assert time.monotonic() < end, f"the process still runs after {timeout} s"
            time.sleep(0.02)
        return status


def start(
    command: Sequence[object],
    *,
    cwd: Path,
    stdout: Path,
    stderr: Path,
    env: Mapping[str, str] | None = None,
    stdin: Path = Path(os.devnull),
) -> Process:
    """Start what ``python *command`` would start; output is written to files."""
    files = [str(stdin), str(stdout), str(stderr)]
    words, variables = [*map(str, command)], dict(os.environ if env is None else env)
    request = {"command": words, "cwd": str(cwd), "env": variables, "files": files}
    return Process(_ask(request))


def run(
    command: Sequence[object],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    input: bytes = b"",
    timeout: float = 300,
) -> subprocess.CompletedProcess[str]:
    """Run what ``python *command`` would run, to its end."""
    with TemporaryDirectory() as folder:
        stdin, stdout, stderr = (Path(folder, name) for name in ("in", "out", "err"))
        stdin.write_bytes(input)
        process = start(command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr)
        status = process.wait(timeout)
        return subprocess.CompletedProcess(
            [*map(str, command)], status, stdout.read_text(), stderr.read_text()
        )


@cache
def _template() -> subprocess.Popen[str]:
    """The process that forks; it ends with its standard input."""
    pipe, command = subprocess.PIPE, [sys.executable, __file__]
    # Libraries may warn when they are imported.
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    )
    atexit.register(process.communicate)  # closes its standard input and waits for its end
    return process


def _ask(request: Mapping[str, Any]) -> Any:
    template = _template()
    assert template.stdin and template.stdout
    template.stdin.write(json.dumps(request) + "\n")
    template.stdin.flush()
    return json.loads(template.stdout.readline())


def _serve() -> dict[str, Any] | None:
    """Answer requests. Returns None at the end, and in a fork the request of its program."""
    ended: dict[int, int] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if pid := request.get("poll"):
            found, status = (0, 0) if pid in ended else os.waitpid(pid, os.WNOHANG)
            if found:
                ended[pid] = os.waitstatus_to_exitcode(status)
            answer = ended.get(pid)
        else:
            answer = os.fork()
            if answer == 0:
                return request
        print(json.dumps(answer), flush=True)
    return None


def _become(request: Mapping[str, Any]) -> None:
    """Turn this fork into the requested process, and run its program."""
    for number, name in enumerate(request["files"]):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY
        os.dup2(os.open(name, flags), number)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    first, *rest = request["command"]
    own = "" if first in ("-c", "-m") else str(Path(first).parent)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[0:1] = [own, *filter(None, paths)]
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    elif first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    for library in _LIBRARIES:
        __import__(library)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy all pages
    if (request := _serve()) is not None:
        _become(request)
