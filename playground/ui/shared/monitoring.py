"""What an operator observes: ``/health``, ``/metrics`` and one log line for each comparison."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.trace import Trace, Update
from playground.ui.shared.model_loading import Labs
from playground.ui.shared.run_queue import RunQueue

log = logging.getLogger("playground")

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_TICK_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


class Monitoring:
    """Counts what happens on one server."""

    def __init__(self, labs: Labs, queue: RunQueue) -> None:
        self._labs = labs
        self._queue = queue
        self._registry = registry = CollectorRegistry()
        ProcessCollector(namespace="playground", registry=registry)
        self.comparisons = Counter(
            "playground_comparisons", "Comparisons that have ended.", ["outcome"], registry=registry
        )
        self.tokens = Counter("playground_tokens", "Tokens written.", registry=registry)
        self.queue_seconds = Histogram(
            "playground_queue_seconds", "Time in the queue.", buckets=_SECONDS, registry=registry
        )
        self.first_token_seconds = Histogram(
            "playground_first_token_seconds",
            "Time from the request to the first token, queue included.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.tick_seconds = Histogram(
            "playground_tick_seconds",
            "Time of one tick of a run.",
            buckets=_TICK_SECONDS,
            registry=registry,
        )
        gauges = {
            "playground_comparisons_running": ("Comparisons that run.", lambda: queue.running),
            "playground_comparisons_waiting": ("Comparisons that wait.", lambda: queue.waiting),
            "playground_models_loaded": ("Models in memory.", lambda: len(labs.loaded)),
            "playground_gpu_bytes": ("GPU memory that torch holds.", _gpu_bytes),
        }
        for name, (about, read) in gauges.items():
            Gauge(name, about, registry=registry).set_function(read)

    def watch(self, model: str) -> Watch:
        """Observe a comparison that was requested just now."""
        return Watch(self, model, time.monotonic())

    def routes(self) -> list[Route]:
        """The routes of the server."""
        return [Route("/health", self._health), Route("/metrics", self._metrics)]

    async def _health(self, _: Request) -> Response:
        model = self._labs.default
        status = self._labs.state(model)
        queue = {"running": self._queue.running, "waiting": self._queue.waiting}
        content = {"status": status, "model": model, **queue}
        return JSONResponse(content, status_code=503 if status == "failed" else 200)

    async def _metrics(self, _: Request) -> Response:
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)


@dataclass
class Watch:
    """Observes one comparison."""

    _monitoring: Monitoring
    _model: str
    _requested: float
    _waited: float = 0.0
    _first: float | None = None
    _traces: list[Trace] = field(default_factory=list)

    def started(self) -> None:
        """It got its turn."""
        self._waited = time.monotonic() - self._requested
        self._monitoring.queue_seconds.observe(self._waited)

    def add(self, updates: Iterable[Update]) -> None:
        """It wrote tokens."""
        for update in updates:
            if update.steps and self._first is None:
                self._first = time.monotonic() - self._requested
                self._monitoring.first_token_seconds.observe(self._first)
            if update.trace:
                self._traces.append(update.trace)

    def ended(self, *, failed: bool = False) -> None:
        """It ended."""
        rules = {trace.stop.rule for trace in self._traces}
        stopped = "stopped" if "cancelled" in rules else "done"
        outcome = "failed" if failed or "error" in rules else stopped
        tokens = sum(len(one.token_ids) for trace in self._traces for one in trace.sequences)
        self._monitoring.comparisons.labels(outcome).inc()
        self._monitoring.tokens.inc(tokens)
        for trace in self._traces:
            for tick in trace.ticks:
                self._monitoring.tick_seconds.observe(tick.ms / 1000)
        # Without prompts and texts: these belong to the visitor.
        fields = {
            "model": self._model,
            "strategies": [trace.strategy for trace in self._traces],
            "outcome": outcome,
            "tokens": tokens,
            "waited_s": round(self._waited, 3),
            "first_token_s": self._first and round(self._first, 3),
            "total_s": round(time.monotonic() - self._requested, 3),
        }
        log.info("comparison", extra={"fields": fields})


class LogFormatter(logging.Formatter):
    """One line for each record: as text, or as JSON with a field for each value."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        fields: dict[str, Any] = getattr(record, "fields", {})
        if not self._as_json:
            pairs = "".join(f" {name}={json.dumps(value)}" for name, value in fields.items())
            return super().format(record) + pairs
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **fields,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _gpu_bytes() -> float:
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return float(torch.cuda.memory_reserved()) if used else 0.0
