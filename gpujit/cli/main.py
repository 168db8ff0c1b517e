"""The command line: parses arguments, runs one command, turns errors into exit codes.

Exit codes: 0 fine, 2 usage (also a target that cannot be written), 3 a file that cannot be loaded, 4 the model failed
while running, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from gpujit import __version__
from gpujit.cli import cache, config, graph, inspect, run, strip
from gpujit.cli.output import safe
from gpujit.support.errors import ArgumentError, GpujitError, LoadError, SaveError

EXIT_USAGE, EXIT_LOAD, EXIT_RUN, EXIT_INTERRUPTED = 2, 3, 4, 130


def parser() -> argparse.ArgumentParser:
    """The whole command line's parser."""
    top = argparse.ArgumentParser(
        prog="gpujit", description="TorchScript without PyTorch: look into and run .pt files."
    )
    top.add_argument("--version", action="version", version=f"gpujit {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for module in (inspect, run, graph, strip, config, cache):
        command = commands.add_parser(
            module.NAME, help=module.HELP, description=module.HELP, epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        module.add_arguments(command)
        command.add_argument("--json", action="store_true", help="print JSON instead of text")
        command.set_defaults(execute=module.execute)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = parser().parse_args(argv)
    try:
        code: int = arguments.execute(arguments)
        sys.stdout.flush()
        return code
    except (ArgumentError, SaveError) as e:
        return _report(arguments, e, EXIT_USAGE)
    except LoadError as e:
        return _report(arguments, e, EXIT_LOAD)
    except GpujitError as e:
        return _report(arguments, e, EXIT_RUN)
    except BrokenPipeError:
        # The reader of our output (such as head) has gone; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as e:
        return _report(arguments, GpujitError(str(e), code="os"), EXIT_USAGE)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def _report(arguments: argparse.Namespace, error: GpujitError, exit_code: int) -> int:
    if arguments.json:
        print(json.dumps(_as_json(error)))
    print(f"gpujit: error[{error.code}]: {safe(str(error))}", file=sys.stderr)
    return exit_code


def _as_json(error: GpujitError) -> dict[str, Any]:
    found = {"error": error.code, "message": error.message, "where": error.where}
    if isinstance(error, LoadError):
        found.update(file=error.file, member=error.member)
    return found
