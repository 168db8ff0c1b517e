"""``gpujit strip FILE -o OUT``: an archive without debug tables and the paths in them."""

from __future__ import annotations

import argparse
import os

from gpujit.cli.output import print_json, safe
from gpujit.serialization.strip import strip
from gpujit.support.units import bytes_text

DESCRIPTION = """Copy an archive without its debug tables, which hold source lines and paths of the machine it was made
on. The program and its weights stay as they are, byte for byte."""
EXAMPLES = """examples:
  gpujit strip model.pt -o small.pt
  gpujit strip model.pt -o model.pt"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help="a TorchScript archive")
    command.add_argument("-o", "--output", required=True, metavar="OUT", help="where to write; may be FILE itself")


def execute(arguments: argparse.Namespace) -> int:
    before = os.path.getsize(arguments.file) if os.path.isfile(arguments.file) else 0
    tables, size = strip(arguments.file, arguments.output)
    after = os.path.getsize(arguments.output)
    facts = {
        "file": arguments.output, "tables": tables, "table_bytes": size, "bytes_before": before, "bytes_after": after,
    }  # fmt: skip
    if arguments.json:
        print_json(facts)
    else:
        print(f"{safe(arguments.output)}: {tables} tables left out, {bytes_text(before)} -> {bytes_text(after)}")
    return 0
