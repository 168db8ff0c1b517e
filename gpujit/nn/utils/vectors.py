"""All parameters of a model as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gpujit.nn.parameter import to_array
from gpujit.nn.typing import Tensor
from gpujit.support.errors import ArgumentError


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The numbers of arrays, one after the other."""
    return np.concatenate([to_array(p, "parameters_to_vector").reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Fill arrays, in place, with the numbers of a vector, one after the other.

    Raises ArgumentError, before anything is written, for a vector that has too few.
    """
    vector, arrays = to_array(vec, "vector_to_parameters"), list(parameters)
    needed = sum(a.size for a in arrays)
    if vector.ndim != 1 or vector.size < needed:
        raise ArgumentError(f"vector_to_parameters: a vector of {needed} numbers is needed, found {list(vector.shape)}")
    start = 0
    for array in arrays:
        array[...] = vector[start : start + array.size].reshape(array.shape)
        start += array.size
