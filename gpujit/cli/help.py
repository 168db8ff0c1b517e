"""``gpujit help COMMAND``: what ``gpujit COMMAND --help`` prints."""

from __future__ import annotations

import argparse

from gpujit.cli.commands import ALIASES, COMMANDS
from gpujit.cli.output import print_json

DESCRIPTION = """Describe a command with its arguments and examples; without one, list the commands."""
EXAMPLES = """examples:
  gpujit help
  gpujit help run"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    names = [*COMMANDS, *ALIASES]
    command.add_argument("name", nargs="?", choices=names, metavar="COMMAND", help="the command to describe")


def execute(arguments: argparse.Namespace) -> int:
    text = help_of(arguments.name)
    if arguments.json:
        print_json({"command": arguments.name, "help": text, "commands": COMMANDS})
    else:
        print(text, end="")
    return 0


def help_of(name: str | None) -> str:
    """The help of a command, or of all without a name."""
    # It makes this command's parser as well.
    from gpujit.cli.main import parser

    top = parser(name or "")
    if name is None:
        return top.format_help()
    (action,) = [a for a in top._actions if isinstance(a, argparse._SubParsersAction)]
    found: argparse.ArgumentParser = action.choices[name]
    return found.format_help()
