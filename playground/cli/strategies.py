"""The command ``strategies``: lists every strategy with its settings."""

from __future__ import annotations

import argparse
from typing import Any

import strategies
from engine.settings import SHARED, Limits, Setting


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser("strategies", help="list strategies and their settings")
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> None:
    """Print the list."""
    limits = Limits()
    for found in strategies.registered().values():
        print(f"{found.id}\n    {found.summary}")
        for setting in found.own_settings.values():
            print(_row(setting, limits))
    print("settings of every strategy")
    for setting in SHARED.values():
        if not setting.python_only:
            print(_row(setting, limits))


def _row(setting: Setting, limits: Limits) -> str:
    default = "" if setting.default is None else f" (default {setting.default})"
    return f"    {setting.name}: {setting.allowed(limits)}{default}. {setting.help}"
