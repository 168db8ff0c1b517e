"""``gpujit config``: every switch, its environment variable, its value and what it does."""

from __future__ import annotations

import argparse
import json

from gpujit.support.config import config

NAME = "config"
HELP = "show every switch with its value and meaning"
EXAMPLES = """examples:
  gpujit config
  GPUJIT_CHECK_TYPES=1 gpujit config --json"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The command takes no arguments of its own."""


def execute(arguments: argparse.Namespace) -> int:
    """Print the switches."""
    print(json.dumps(config.switches()) if arguments.json else config.describe())
    return 0
