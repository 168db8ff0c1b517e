"""``gpujit completion SHELL``: a script that makes a shell complete commands, options and files."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpujit.cli.commands import ALIASES
from gpujit.cli.output import print_json

DESCRIPTION = (
    """Print a script for bash, zsh or fish that completes gpujit's commands, options, their values, and files."""
)
EXAMPLES = """examples:
  source <(gpujit completion bash)                      in ~/.bashrc
  source <(gpujit completion zsh)                       in ~/.zshrc, after compinit
  gpujit completion fish > ~/.config/fish/completions/gpujit.fish"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=sorted(_SHELLS), help="which shell the script is for")


def execute(arguments: argparse.Namespace) -> int:
    # The parser is made of all commands, this one among them.
    from gpujit.cli.main import parser

    script = _SHELLS[arguments.shell](parser())
    if arguments.json:
        print_json({"shell": arguments.shell, "script": script})
    else:
        print(script, end="")
    return 0


@dataclass(frozen=True, slots=True)
class Option:
    """An option (or a positional argument, without names): what it is called, what it means, what values it takes."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]


def commands_of(top: argparse.ArgumentParser) -> dict[str, tuple[str, list[Option]]]:
    """Each command, aliases too, with its help and its options."""
    (action,) = [a for a in top._actions if isinstance(a, argparse._SubParsersAction)]
    help_of = {c.dest: c.help or "" for c in action._choices_actions}
    return {
        name: (help_of[ALIASES.get(name, name)], list(_options(command))) for name, command in action.choices.items()
    }


def _options(command: argparse.ArgumentParser) -> Iterator[Option]:
    for a in command._actions:
        choices = tuple(map(str, a.choices)) if a.choices is not None else ()
        yield Option(tuple(a.option_strings), (a.help or "").replace("%%", "%"), a.nargs != 0, choices)


def _words(words: Any) -> str:
    return shlex.quote(" ".join(words))


def bash(top: argparse.ArgumentParser) -> str:
    """The script for bash."""
    commands = commands_of(top)
    cases = []
    for name, (_, options) in commands.items():
        names = [n for o in options for n in o.names]
        choices = [c for o in options if not o.names for c in o.choices]
        values = [
            f"        {'|'.join(o.names)}) words={_words(o.choices)} ;;" for o in options if o.names and o.choices
        ]
        plain = [n for o in options if o.names and o.takes_value and not o.choices for n in o.names]
        # What follows these is a file, or nothing that could be known.
        values += [f"        {'|'.join(plain)}) words='' ;;"] if plain else []
        inner = ["      case $before in", *values, "      esac"] if values else []
        cases += [f"    {name})", f"      options={_words(names)} words={_words(choices)}", *inner, "      ;;"]
    return "\n".join([
        "_gpujit() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="" options words="" i',
        "  local IFS=$' \\t\\n'",
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        '    if [[ ${COMP_WORDS[i]} != -* ]]; then command="${COMP_WORDS[i]}"; break; fi',
        "  done",
        "  case $command in",
        f"    '') options='--help --version' words={_words(commands)} ;;",
        *cases,
        "  esac",
        '  if [[ $word == -* ]]; then COMPREPLY=($(compgen -W "$options" -- "$word"))',
        '  elif [[ -n $words ]]; then COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "  else IFS=$'\\n'; COMPREPLY=($(compgen -f -- \"$word\")); fi",
        "}",
        "complete -o filenames -F _gpujit gpujit",
        "",
    ])  # fmt: skip


def zsh(top: argparse.ArgumentParser) -> str:
    """The script for zsh."""

    def plain(text: str) -> str:
        return "".join(f"\\{c}" if c in "\\[]:" else c for c in text)

    commands = commands_of(top)
    lines = ["#compdef gpujit", "_gpujit() {", "  local -a commands", "  commands=("]
    lines += [f"    {shlex.quote(f'{name}:{plain(text)}')}" for name, (text, _) in commands.items()]
    lines += ["  )", "  if (( CURRENT == 2 )); then _describe -t commands command commands; return; fi"]
    lines += ['  local command="$words[2]"', "  shift words; (( CURRENT-- ))", "  case $command in"]
    for name, (_, options) in commands.items():
        specs = []
        for o in options:
            values = f":value:({' '.join(o.choices)})" if o.choices else ":value:_files" if o.takes_value else ""
            specs += [shlex.quote(f"{n}[{plain(o.help)}]{values}") for n in o.names]
        choices = next((o.choices for o in options if not o.names and o.choices), ())
        specs.append(shlex.quote(f"*:value:({' '.join(choices)})" if choices else "*:file:_files"))
        lines += [f"    {name}) _arguments -s \\", *(f"      {s} \\" for s in specs[:-1]), f"      {specs[-1]} ;;"]
    lines += [
        "  esac",
        "}",
        'if [ "$funcstack[1]" = "_gpujit" ]; then _gpujit "$@"; else compdef _gpujit gpujit; fi',
        "",
    ]
    return "\n".join(lines)


def fish(top: argparse.ArgumentParser) -> str:
    """The script for fish."""

    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = [
        "complete -c gpujit -n __fish_use_subcommand -l version -f",
        "complete -c gpujit -n __fish_use_subcommand -f",
    ]
    for name, (text, options) in commands_of(top).items():
        lines.append(f"complete -c gpujit -n __fish_use_subcommand -a {name} -d {quoted(text)}")
        here = f"complete -c gpujit -n '__fish_seen_subcommand_from {name}'"
        for o in options:
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in o.names)
            values = f" -xa {quoted(' '.join(o.choices))}" if o.choices else " -r" if o.takes_value else ""
            if names:
                lines.append(f"{here} {names} -d {quoted(o.help)}{values}")
            elif o.choices:
                lines.append(f"{here} -fa {quoted(' '.join(o.choices))}")
    return "\n".join([*lines, ""])


_SHELLS = {"bash": bash, "fish": fish, "zsh": zsh}
