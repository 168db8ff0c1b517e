"""The commands there are. Each is a module ``gpujit.cli.NAME``, loaded when it is to run or to be described."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Protocol, cast

# What each does, in the order of the help.
COMMANDS = {
    "inspect": "show version, methods, parameters, dtypes, devices and operator coverage; runs nothing",
    "verify": "check a file, its graphs, that all tiers agree, and that it is the same saved and loaded again",
    "run": "run a model on arrays from files or on random inputs of given shapes; prints outputs and time",
    "explain": "show what was fused for given inputs, what that saves, what was not and why",
    "compare": "compare two models, or the tiers of one: largest differences, and the first operator that differs",
    "graph": "show a model's graph at any stage, as text, SVG, DOT or JSON",
    "profile": "show where the time and memory of calls go, step by step, fused against unfused; writes reports",
    "bench": "time the tiers and, when asked, torch.jit, torch.compile and ONNX Runtime, in rounds that take turns",
    "optimise": "write a frozen, simplified copy, which PyTorch loads too, and check that it computes the same",
    "strip": "copy an archive without its debug tables, which hold source lines and paths",
    "warm": "compile a model's kernels into the cache ahead of time, for GPUs as well, which need not be there",
    "cache": "show or remove the compiled kernels kept on disk",
    "doctor": "show versions, processor, threads, cache, compiler, GPU and switches, and what to do about faults",
    "config": "show every switch with its value and meaning",
    "completion": "print a script that completes commands and options in bash, zsh or fish",
    "help": "describe a command, with examples",
}
# Other spellings, and what they stand for.
ALIASES = {"optimize": "optimise"}


class Command(Protocol):
    """What a command's module has: a text on what it does, examples, its arguments, and what runs it."""

    DESCRIPTION: str
    EXAMPLES: str

    def add_arguments(self, command: argparse.ArgumentParser) -> None:
        """Add its arguments to a parser, which has ``--json`` and ``--quiet`` already."""

    def execute(self, arguments: argparse.Namespace) -> int:
        """Run it; the exit code. Results go to standard output; work over a second is a ``Stage``."""


def module(name: str) -> Command:
    """The module of a command."""
    return cast(Command, import_module(f"gpujit.cli.{name}"))
