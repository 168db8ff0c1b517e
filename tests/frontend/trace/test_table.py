"""Every entry of the tables of NumPy functions, traced and run, against NumPy: numbers, shapes and dtypes."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpujit
from gpujit.frontend.trace import numpy_calls, numpy_ufuncs
from gpujit.frontend.trace.check import difference
from gpujit.frontend.trace.report import KINDS
from gpujit.ir.verify import verify
from tests.frontend.trace.samples import EXPRESSIONS, FIXED, arrays


def names_in(expression: str) -> list[str]:
    """The arrays an expression reads."""
    return [n for n in arrays() if re.search(rf"(?<![\w.'\"]){n}(?![\w'\"(=])", expression)]


def compiled(expression: str) -> tuple[Any, list[str]]:
    """The expression as a function of the arrays it reads."""
    names = names_in(expression)
    return eval(f"lambda {', '.join(names)}: {expression}", {"np": np}), names


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_traced_call_computes_what_numpy_computes(expression):
    function, names = compiled(expression)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = gpujit.trace(function, tuple(arrays()[n] for n in names))
        verify(traced.graph)
        for seed in range(3):
            given = [arrays(seed)[n] for n in names]
            expected = function(*given)
            assert not difference(traced(*given), expected, 1e-9 if "f" not in names else 1e-5)
        if not any(part in expression for part in FIXED):
            assert not traced.trace_report.of_kind("size"), traced.trace_report
        assert not traced.trace_report.of_kind("random"), traced.trace_report


def _path(function: Any) -> set[str]:
    """The names under which NumPy has a function."""
    found = set()
    for prefix, module in (("np", np), ("np.linalg", np.linalg), ("np.fft", np.fft)):
        found |= {f"{prefix}.{n}" for n in dir(module) if getattr(module, n, None) is function}
    return found | {f"np.lib.stride_tricks.{function.__name__}"}


# Those that write into their argument are tested on their own.
_WRITES = {np.copyto, np.putmask, np.place, np.put_along_axis, np.fill_diagonal}


def test_every_entry_has_a_sample():
    numpy_calls.load_tables()
    text = "\n".join(EXPRESSIONS)
    missing = [
        f.__name__
        for f in [*numpy_calls.FUNCTIONS, *numpy_ufuncs.UFUNCS]
        if f not in _WRITES and not any(f"{p}(" in text for p in _path(f))
    ]
    assert not missing


def test_the_documentation_lists_every_function():
    numpy_calls.load_tables()
    text = (Path(__file__).parents[3] / "docs" / "tracing.md").read_text()
    for function in [*numpy_calls.FUNCTIONS, *numpy_ufuncs.UFUNCS]:
        assert f"{function.__name__}`" in text, function
    assert all(f"| `{kind}` |" in text for kind in KINDS)
