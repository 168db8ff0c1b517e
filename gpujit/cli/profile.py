"""``gpujit profile FILE``: where time and memory of calls go, step by step, fused against unfused; also as files."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from gpujit.cli.inputs import INPUTS, add_device_argument, add_model_arguments, chosen, positive
from gpujit.cli.output import print_json, safe
from gpujit.support.errors import ArgumentError

DESCRIPTION = """Call a model many times and show where the time goes: each step of its plan with its source line and
module, bytes, operations, and how near it comes to what the machine reaches; fused steps against their operators one by
one; loading, planning, compiling, first call and steady state apart. What the model changes of itself is undone."""
EXAMPLES = f"""{INPUTS}
examples:
  gpujit profile model.pt 1x3x224x224
  gpujit profile model.pt 1x3x224x224 --html report.html
  gpujit profile bert.pt 1x128:int64:1000 --threads 1 --rounds 100 --trace bert.json
  gpujit profile vad.jit 1x512 int=16000 --json | jq '.groups[].speedup.median'"""

_ROUNDS = 30


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_model_arguments(command)
    add_device_argument(command)
    command.add_argument(
        "--rounds", type=positive, default=_ROUNDS, metavar="N", help=f"timed calls (default: {_ROUNDS})"
    )
    command.add_argument("--threads", type=positive, metavar="N", help="threads of the plan")
    command.add_argument("--trace", metavar="OUT", help="write a timeline for ui.perfetto.dev or chrome://tracing")
    command.add_argument("--html", metavar="OUT", help="write a report to look at in a browser")
    command.add_argument("--interpreter", action="store_true", help="also time the interpreter")
    command.add_argument("--quick", action="store_true", help="do not time the model and its groups without fusion")
    command.add_argument("--all", action="store_true", help="show every step")


def execute(arguments: argparse.Namespace) -> int:
    model = chosen(arguments)
    # Help needs none of this.
    from gpujit.profiler.core import MAX_ROUNDS, profile_module
    from gpujit.profiler.data import Phase

    if arguments.rounds > MAX_ROUNDS:
        raise ArgumentError(f"--rounds is at most {MAX_ROUNDS}, found {arguments.rounds}")
    profile = profile_module(
        model.module,
        model.values,
        method=model.method.name,
        rounds=arguments.rounds,
        threads=arguments.threads,
        unfused=not arguments.quick,
        groups=not arguments.quick,
        interpreted=arguments.interpreter,
        file=arguments.file,
        phases=(Phase("load", model.load_seconds),),
    )
    written = []
    if arguments.trace:
        profile.save_trace(arguments.trace)
        written.append(f"timeline: {safe(arguments.trace)} (open it in ui.perfetto.dev)")
    if arguments.html:
        from gpujit.profiler import report

        report.write(profile, arguments.html)
        written.append(f"report: {safe(arguments.html)}")
    if arguments.json:
        print_json(profile.as_json())
    else:
        _show(profile, len(profile.steps) if arguments.all else None)
        for line in written:
            print(line)
    return 0


def _show(profile: Any, most: int | None) -> None:
    """Print the tables, in as many columns as there are."""
    import shutil

    from gpujit.cli.output import is_terminal
    from gpujit.profiler.text import MOST_STEPS, WIDTH, profile_text

    width = shutil.get_terminal_size().columns if is_terminal() else WIDTH
    sys.stdout.write(profile_text(profile, width, most or MOST_STEPS) + "\n")
