"""``gpujit config``: every switch, its environment variable, its value and what it does."""

from __future__ import annotations

import argparse

from gpujit.cli.output import print_json, safe
from gpujit.support.config import config

DESCRIPTION = """Show every switch: its environment variable, the value it has now, and what it does."""
EXAMPLES = """examples:
  gpujit config
  GPUJIT_CHECK_TYPES=1 gpujit config --json"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The command takes no arguments of its own."""


def execute(arguments: argparse.Namespace) -> int:
    """Print the switches."""
    if arguments.json:
        print_json(config.switches())
    else:
        print(safe(config.describe()))
    return 0
