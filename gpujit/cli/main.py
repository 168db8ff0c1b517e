"""The command line: parses arguments, runs one command, turns errors into exit codes.

Exit codes: 0 fine, 1 something does not agree, 2 usage (also a target that cannot be written), 3 a file that cannot be
loaded, 4 the model failed while running, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import Any, NoReturn

from gpujit import __version__
from gpujit.cli.commands import ALIASES, COMMANDS, module
from gpujit.support.errors import ArgumentError, GpujitError, LoadError, SaveError

EXIT_MISMATCH, EXIT_USAGE, EXIT_LOAD, EXIT_RUN, EXIT_INTERRUPTED = 1, 2, 3, 4, 130
_CODES = """exit codes:
  0 fine   1 something does not agree   2 wrong usage, or a target that cannot be written
  3 a file that cannot be loaded   4 the model failed while running   130 interrupted

gpujit COMMAND --help (or gpujit help COMMAND) describes a command and has examples."""


class Parser(argparse.ArgumentParser):
    """Prints faults as JSON as well when it is asked for JSON."""

    wants_json = False

    def error(self, message: str) -> NoReturn:
        if self.wants_json:
            from gpujit.cli.output import print_json

            print_json({"error": "usage", "message": message, "where": ""})
        super().error(message)


def parser(only: str | None = None) -> Parser:
    """The whole command line's parser; with ``only``, other commands are named in it and no more."""
    top = Parser(
        prog="gpujit", description="TorchScript without PyTorch: look into, check, run and optimise .pt files.",
        epilog=_CODES, formatter_class=Formatter,
    )  # fmt: skip
    top.add_argument("--version", action="version", version=f"gpujit {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help in COMMANDS.items():
        aliases = [a for a, meant in ALIASES.items() if meant == name]
        if only is not None and only not in (name, *aliases):
            commands.add_parser(name, help=help, aliases=aliases)
            continue
        found = module(name)
        command = commands.add_parser(
            name, help=help, aliases=aliases, description=found.DESCRIPTION, epilog=found.EXAMPLES,
            formatter_class=Formatter,
        )  # fmt: skip
        found.add_arguments(command)
        command.add_argument("--json", action="store_true", help="print JSON instead of text")
        command.add_argument("-q", "--quiet", action="store_true", help="no progress and no warnings")
        command.set_defaults(execute=found.execute)
    return top


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Folds paragraphs to the terminal, and leaves those with indented lines (examples, tables) as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.strip("\n").split("\n\n")
        return "\n\n".join(
            part if "\n  " in part or part.startswith("  ") else textwrap.fill(part, width, break_on_hyphens=False)
            for part in parts
        )


def parsed(given: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command line. Options may stand among the inputs."""
    name = next((a for a in given if not a.startswith("-")), "")
    # Loading what only other commands need would take longer than most commands.
    top = parser(name)
    top.wants_json = "--json" in given
    (action,) = [a for a in top._actions if isinstance(a, argparse._SubParsersAction)]
    if name not in action.choices or given[0] != name:
        return top.parse_args(given)
    command: Parser = action.choices[name]
    command.wants_json = top.wants_json
    return command.parse_intermixed_args(given[1:], argparse.Namespace(command=name))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = argparse.Namespace(json="--json" in given)
    try:
        arguments = parsed(given)
        return _run(arguments)
    except (ArgumentError, SaveError) as e:
        return _report(arguments, e, EXIT_USAGE)
    except LoadError as e:
        return _report(arguments, e, EXIT_LOAD)
    except GpujitError as e:
        return _report(arguments, e, EXIT_RUN)
    except MemoryError as e:
        return _report(arguments, GpujitError(f"there is no memory for it: {e}", code="memory"), EXIT_RUN)
    except BrokenPipeError:
        # The reader of our output (such as head) has gone.
        _drop_output()
        return 0
    except OSError as e:
        _drop_output()
        return _report(arguments, GpujitError(str(e), code="os"), EXIT_USAGE)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _run(arguments: argparse.Namespace) -> int:
    # Only now: what --help needs is little.
    from gpujit.cli import notices, progress

    for stream in (sys.stdout, sys.stderr):
        # Names from files may hold characters that the terminal's encoding lacks.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with notices.shown(arguments.quiet), progress.shown(arguments.quiet):
        code: int = arguments.execute(arguments)
    if sys.stdout is not None:
        sys.stdout.flush()
    return code


def _drop_output() -> None:
    """Keep the interpreter from writing what is left, and complaining, at exit."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(arguments: argparse.Namespace, error: GpujitError, exit_code: int) -> int:
    from gpujit.cli.output import print_json, safe

    if arguments.json:
        try:
            print_json(_as_json(error))
            sys.stdout.flush()
        except OSError:
            _drop_output()
    print(f"gpujit: error[{error.code}]: {safe(str(error))}", file=sys.stderr)
    return exit_code


def _as_json(error: GpujitError) -> dict[str, Any]:
    found = {"error": error.code, "message": error.message, "where": error.where}
    if isinstance(error, LoadError):
        found.update(file=error.file, member=error.member)
    return found
