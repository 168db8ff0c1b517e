"""The numbers in 0-dim integer tensors, which traces compute sizes with: operators run on numbers and expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpujit.ir.symbols import Sym
from gpujit.ir.types import TensorType
from gpujit.ops.registry import Op
from gpujit.ops.symbolic import Live


def computed(op: Op, numbers: Sequence[Any], known: Sequence[Any]) -> Any:
    """What an operator on numbers gives: its body run on them. None when that cannot be said."""
    arguments: list[Any] = []
    for i, (number, other) in enumerate(zip(numbers, known, strict=True)):
        if number is not None:
            arguments.append(_Number(number) if i < 2 else number)
        elif other is None or type(other) in (bool, str):
            arguments.append(other)
        else:
            return None
    try:
        missing = [a.default for a in op.schema.arguments[len(arguments) :]]
        if op.kind == "pointwise":
            result = op.body(_Integers, *arguments, *missing)
        elif len(arguments) == len(op.schema.arguments) == 1 and _is_identity(op):
            result = numbers[0]
        else:
            return None
    except Exception:  # whatever the body raises, the number is not known
        return None
    if isinstance(result, Live):
        result = result.size
    if isinstance(result, Sym):
        return result
    return result if type(result) is int and abs(result) < 1 << 62 else None


_identities: dict[Op, bool] = {}


def _is_identity(op: Op) -> bool:
    """Whether an operator of one argument only brings a whole number from one form to another (Int, item, NumToTensor).

    Found by asking it for some numbers.
    """
    found = _identities.get(op)
    if found is None:
        from_tensor = isinstance(op.schema.arguments[0].type, TensorType)
        found = _identities[op] = all(_gives_back(op, n, from_tensor) for n in (-3, 0, 1, 2, 5, 1 << 40))
    return found


def _gives_back(op: Op, n: int, from_tensor: bool) -> bool:
    try:
        result = op.kernel(np)(np.array(n) if from_tensor else n)
    except Exception:  # whatever it is, it is no identity
        return False
    if isinstance(result, np.ndarray):
        return result.shape == () and result.dtype == np.int64 and int(result) == n
    return type(result) is int and result == n


class _Number(Live):
    """The number in a 0-dim int64 tensor, as bodies of operators on tensors take it."""

    __slots__ = ()
    dtype = np.dtype(np.int64)
    ndim = 0

    def all(self) -> bool:
        """Whether it is not zero."""
        return self != 0


class _Integers:
    """The functions of a body's module that whole numbers have exact answers for."""

    @staticmethod
    def add(a: Any, b: Any) -> Any:
        """a + b."""
        return a + b

    @staticmethod
    def subtract(a: Any, b: Any) -> Any:
        """a - b."""
        return a - b

    @staticmethod
    def multiply(a: Any, b: Any) -> Any:
        """a * b."""
        return a * b

    @staticmethod
    def floor_divide(a: Any, b: Any) -> Any:
        """a // b."""
        return a // b

    @staticmethod
    def mod(a: Any, b: Any) -> Any:
        """a % b."""
        return a % b

    @staticmethod
    def negative(a: Any) -> Any:
        """-a."""
        return -a
