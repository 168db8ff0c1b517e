"""Makes tests/frontend/language_expected.json: what PyTorch makes of each language snippet.

For each snippet either "refused", or one entry a run: the result and what was printed, or that it raised with the last
line of the message. Usage: python -m tests.frontend.make_language_expected   (needs torch)
"""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from typing import Any

import torch

from tests.frontend import language


def outcome(snippet: language.Snippet) -> Any:
    """What scripting and running a snippet with PyTorch gives."""
    try:
        scripted = torch.jit.script(language.load(snippet, torch).f)
    except Exception as e:
        return {"refused": str(e).strip().split("\n")[0][:200]}
    return [run(scripted, values) for values in snippet.inputs]


def run(scripted: Any, values: tuple[Any, ...]) -> Any:
    """The result of one run, with what it printed."""
    arguments = language.arguments(values, torch.from_numpy)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), torch.no_grad():
        try:
            result: Any = {"value": language.plain(scripted(*arguments))}
        except Exception as e:
            result = {"raised": str(e).strip().split("\n")[-1]}
    return {**result, "printed": printed.getvalue()}


def main() -> None:
    warnings.simplefilter("ignore")
    found = {s.name: outcome(s) for s in language.all_snippets()}
    text = ",\n".join(f"{json.dumps(n)}: {json.dumps(o)}" for n, o in found.items())
    language.EXPECTED.write_text("{\n" + text + "\n}\n")
    refused = sum(isinstance(o, dict) for o in found.values())
    print(f"{len(found)} snippets, {refused} of them refused")


if __name__ == "__main__":
    main()
