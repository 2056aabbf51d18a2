"""The trace: a record of everything a run did, and what writes it.

This package's top level is the record itself, standard library only.
"""

from engine.trace.trace import Trace, Update, dump_traces, load_traces
from engine.trace.types import (
    EVENTS,
    Candidate,
    Distribution,
    Sequence,
    Step,
    Stop,
    Tick,
    Token,
)

__all__ = [
    "EVENTS",
    "Candidate",
    "Distribution",
    "Sequence",
    "Step",
    "Stop",
    "Tick",
    "Token",
    "Trace",
    "Update",
    "dump_traces",
    "load_traces",
]
