"""The option ``buckets``: dims of inputs whose sizes vary, and the sizes that plans are made for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpujit.ir import types as T
from gpujit.ir.arrays import describe
from gpujit.support.errors import ArgumentError

# What stands for all powers of two.
POWERS = "powers"

Option = Mapping[Any, Mapping[int, Any]]


@dataclass(frozen=True, slots=True)
class Bucket:
    """One dim of one input: where it is, and the sizes in order; None for all powers of two."""

    position: int
    name: str
    dim: int
    sizes: tuple[int, ...] | None

    def __str__(self) -> str:
        sizes = "powers of two" if self.sizes is None else ", ".join(map(str, self.sizes))
        return f"dim {self.dim} of {self.name or f'input {self.position}'} to {sizes}"

    def holding(self, size: int) -> int | None:
        """The least size that is not below this one; None when there is none."""
        if self.sizes is None:
            return 1 << max(size - 1, 0).bit_length()
        at = bisect_left(self.sizes, size)
        return self.sizes[at] if at < len(self.sizes) else None

    def below(self, size: int) -> int:
        """The largest size below one of them; 0 for the first."""
        if self.sizes is None:
            return size // 2
        at = bisect_left(self.sizes, size)
        return self.sizes[at - 1] if at else 0


def buckets_of(option: Option | None, inputs: Sequence[tuple[str, T.Type]]) -> tuple[Bucket, ...]:
    """The dims that an option names: ``{"x": {0: (1, 4, 16)}}``, inputs by name or position, or ``{0: {0: "powers"}}``.

    Args:
        inputs: names and types, without ``self``.
    Raises ArgumentError for inputs that there are not, or that are no tensors, and for what are no dims or sizes.
    """
    if option is None:
        return ()
    if not isinstance(option, Mapping) or not all(isinstance(v, Mapping) for v in option.values()):
        raise ArgumentError(
            'buckets is a dict of dims and sizes for each input, such as {"x": {0: (1, 4, 16)}} or {0: {0: "powers"}}; '
            f"found {describe(option)}"
        )
    found: dict[tuple[int, int], Bucket] = {}
    for key, dims in option.items():
        position = _position(key, inputs)
        name, t = inputs[position]
        plain = t.element if isinstance(t, T.OptionalType) else t
        if not isinstance(plain, T.TensorType):
            raise ArgumentError(f"buckets: {name or f'input {position}'} is {t}; only tensors have dims")
        for dim, sizes in dims.items():
            if type(dim) is not int:
                raise ArgumentError(f"buckets: dims of {name or position} are ints, found {describe(dim)}")
            if (position, dim) in found:
                raise ArgumentError(f"buckets: dim {dim} of {name or f'input {position}'} is named twice")
            found[position, dim] = Bucket(position, name, dim, _sizes(sizes, name or f"input {position}"))
    return tuple(found.values())


def _position(key: Any, inputs: Sequence[tuple[str, T.Type]]) -> int:
    names = [name for name, _ in inputs]
    if type(key) is int and 0 <= key < len(inputs):
        return key
    if isinstance(key, str) and key in names:
        return names.index(key)
    raise ArgumentError(f"buckets: there is no input {key!r}; the inputs are {', '.join(names) or 'none'}")


def _sizes(sizes: Any, name: str) -> tuple[int, ...] | None:
    if isinstance(sizes, str) and sizes == POWERS:
        return None
    if not isinstance(sizes, (tuple, list)) or not sizes or not all(type(n) is int and n > 0 for n in sizes):
        raise ArgumentError(
            f"buckets: sizes of {name} are positive ints, such as (1, 4, 16), or {POWERS!r}; found {describe(sizes)}"
        )
    return tuple(sorted(set(sizes)))
