"""What the modules of one file share: the interpreter, executors of optimised functions, the archive's source."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from gpujit.ir.module import Function
from gpujit.runtime.lower import Lowerer
from gpujit.runtime.outputs import Targets, put
from gpujit.runtime.stats import PlanStats
from gpujit.runtime.vm import Interpreter
from gpujit.serialization import reader
from gpujit.support.errors import ArgumentError


class Program:
    """What the modules of one file share: the interpreter and the archive's source."""

    def __init__(self, xp: Any) -> None:
        self.lowerer = Lowerer(xp)
        self.interpreter = Interpreter(self.lowerer)
        self.loaded: reader.Loaded | None = None
        # What freezing did to the module; None before.
        self.report: Any = None
        # Makes the executor of a function, when functions are specialised and fused; None when they are interpreted.
        self.optimised: Callable[[Function], Any] | None = None
        self._executors: dict[Function, Any] = {}
        self._lock = threading.RLock()

    def run(self, function: Function, args: list[Any], out: Targets | None = None) -> Any:
        """Run a function on run-time values; the result goes into the arrays ``out``."""
        executor = self.executor(function)
        if executor is not None:
            return executor(args) if out is None else executor(args, out)
        result = self.interpret(function, args)
        return result if out is None else put(result, out)

    def optimise(self, make: Callable[[Function], Any]) -> None:
        """Run functions with what ``make`` makes for each from now on."""
        with self._lock:
            self.optimised, self._executors = make, {}

    def executor(self, function: Function) -> Any:
        """What runs a function specialised for its inputs; None when it is interpreted."""
        found = self._executors.get(function)
        if found is None and self.optimised is not None:
            with self._lock:
                found = self._executors.setdefault(function, self.optimised(function))
        return found

    def executors(self) -> list[Any]:
        """The executors of all functions that ran."""
        return list(self._executors.values())

    def stats(self) -> PlanStats:
        """What the executors of all functions did."""
        return sum((e.stats() for e in self.executors()), PlanStats())

    def require_plans(self, function: Function) -> None:
        """Raises ArgumentError when functions run on the interpreter alone."""
        if self.optimised is None:
            raise ArgumentError(
                f"{function.name} runs on the interpreter, where there is nothing to prepare; call "
                "gpujit.optimize_for_inference(module) first"
            )

    def compiling(self) -> threading.RLock:
        """What to hold while functions are compiled: that fills shared tables."""
        return self._lock

    def saving(self) -> dict[str, Any]:
        """What the writer has to know besides the module."""
        return {"run_method": self.run, "trainable": None if self.loaded is None else self.loaded.trainable}

    def interpret(self, function: Function, args: list[Any]) -> Any:
        """Run a function as it is written."""
        code = self.lowerer.find(function)
        if code is None:
            # Compiling reads and fills shared tables; running does not.
            with self._lock:
                code = self.lowerer.code(function)
        with np.errstate(all="ignore"):
            return self.interpreter.run(code, args)
