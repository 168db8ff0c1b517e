"""What the tests of local passes share: running graphs, rows of before and after, and reasons for declining."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ir.graph import Graph
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.vm import Interpreter
from gpujit.testing import check_pass


def run(graph: Graph, *inputs: Any) -> Any:
    """What the graph returns for the inputs."""
    lowerer = Lowerer(np)
    with np.errstate(all="ignore"):
        return Interpreter(lowerer).run(lowerer.graph_code(graph), list(inputs))


def check_row(
    pass_fn: Callable[[Graph], bool], inputs: str, before: str, after: str, samples: Any = None, **options: Any
) -> Graph:
    """``check_pass`` on two bodies with the same inputs; lines of a body are separated by semicolons.

    The last name assigned is returned; an empty body returns the first input.
    """
    return check_pass(pass_fn, graph_text(inputs, before), graph_text(inputs, after), samples, run, **options)


def graph_text(inputs: str, body: str) -> str:
    """A graph's text from a list of inputs and lines separated by semicolons."""
    lines = [line.strip() for line in body.split(";") if line.strip()]
    if lines and lines[-1].startswith("return"):
        result = lines.pop()
    else:
        last = (lines[-1] if lines else inputs).partition("=")[0].partition(":")[0].split(",")[0].strip()
        result = f"return ({last})"
    return "\n".join([f"graph({inputs}):", *(f"  {line}" for line in lines), f"  {result}"])


def check_declines(
    pass_fn: Callable[[Graph], bool], inputs: str, body: str, caplog: Any, reason: str | None = None, **options: Any
) -> None:
    """The pass leaves the graph as it is, and says ``reason`` in the log when one is given."""
    text = graph_text(inputs, body)
    with caplog.at_level(logging.DEBUG, logger="gpujit.passes"):
        check_pass(pass_fn, text, text, **options)
    if reason is not None:
        assert reason in caplog.text


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers of a normal distribution, float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
