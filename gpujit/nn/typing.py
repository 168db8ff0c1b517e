"""Names for the annotations of layers. A compiler of their source reads the live objects, a type checker the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Callable[..., Any])


class BroadcastingList:
    """``BroadcastingList2[int]`` is a ``list[int]`` for which callers may give a lone int: it is meant twice."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __getitem__(self, element: Any) -> Any:
        return list[element]

    def __repr__(self) -> str:
        return f"BroadcastingList{self.length}"


if TYPE_CHECKING:
    # Operators are found by name at run time, so that nothing is known of what they return.
    Tensor: TypeAlias = Any
    BroadcastingList1: TypeAlias = _T | Any
    BroadcastingList2: TypeAlias = _T | Any
    BroadcastingList3: TypeAlias = _T | Any
else:
    Tensor = np.ndarray
    BroadcastingList1, BroadcastingList2, BroadcastingList3 = map(BroadcastingList, (1, 2, 3))

# What a constructor takes for sizes: one for all dimensions, or one for each.
Sizes: TypeAlias = int | Sequence[int]


def overloads(*signatures: Callable[..., Any]) -> Callable[[_F], _F]:
    """Marks a function as one for each of several signatures, of which a compiler takes the first that a call fits.

    The signatures' own bodies count for nothing; the function's is compiled with each one's annotations.
    """

    def mark(fn: _F) -> _F:
        fn.overloads = signatures  # type: ignore[attr-defined]
        return fn

    return mark


class BooleanDispatch:
    """A function that is one of two others, by the value of an argument that must be known when it is compiled.

    ``argument`` is that argument's name, ``position`` its place, ``default`` its value when it is not given.
    """

    def __init__(
        self,
        name: str,
        argument: str,
        position: int,
        default: bool,
        if_true: Callable[..., Any],
        if_false: Callable[..., Any],
    ) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = if_true.__module__
        self.__doc__ = if_false.__doc__
        self.argument, self.position, self.default = argument, position, default
        self.if_true, self.if_false = if_true, if_false

    def choose(self, value: bool) -> Callable[..., Any]:
        """The function that stands for the value of the argument."""
        return self.if_true if value else self.if_false

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.argument in kwargs:
            value = kwargs[self.argument]
        else:
            value = args[self.position] if len(args) > self.position else self.default
        return self.choose(bool(value))(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<function {self.__name__}>"
